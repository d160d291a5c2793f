"""Produce reports as files: for an audience, over a window, in a format."""

import re
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Literal, get_args

import msgspec

from dashboards.figures import extent
from dashboards.figures.query import Filters
from dashboards.reports import focus
from dashboards.reports.amounts import format_cell, strip_marks
from dashboards.reports.document import ACTIONS_TITLE
from dashboards.reports.report_request import ReportRequest, check_window, format_window
from dashboards.reports.svg_charts import HOW
from fallow.errors import UsageError
from fallow.protocols import Views
from fallow.settings import Settings
from fallow.window import Window
from warehouse import coverage

if TYPE_CHECKING:
    from dashboards.reports.document import ReportDocument

Audience = Literal["finance", "sre", "team"]
Format = Literal["html", "pdf", "md", "csv", "focus"]
FocusVersion = Literal["1.2", "1.0"]
AUDIENCES: tuple[str, ...] = get_args(Audience)
FORMATS: tuple[str, ...] = get_args(Format)
FOCUS_VERSIONS: tuple[str, ...] = get_args(FocusVersion)
MEDIA = {
    "html": "text/html; charset=utf-8",
    "pdf": "application/pdf",
    "md": "text/markdown; charset=utf-8",
    "csv": "text/csv; charset=utf-8",
    "focus": "text/csv; charset=utf-8",
    "parquet": "application/vnd.apache.parquet",
}
ENDINGS = {"focus": "focus.csv", "parquet": "focus.parquet"}


class Report(msgspec.Struct, frozen=True):
    """A report, ready to be written, mailed or stored.

    `name` is a file name of letters, digits, `.`, `_` and `-`; `summary` a few lines of plain text.
    """

    name: str
    media_type: str
    body: bytes
    title: str
    summary: str


def produce(
    views: Views,
    settings: Settings,
    *,
    audience: str,
    window: Window,
    fmt: str,
    team: str | None = None,
    cluster: str | None = None,
    now: datetime,
    focus_version: str = "1.2",
    parquet: bool = False,
) -> Report:
    """Return a report over a window: the same numbers as the pages, to the cent.

    `parquet` writes FOCUS as Parquet instead of CSV.

    Raises:
        UsageError: no such audience, format, version or team; the window has no data; the packages
            for pictures or pages are not installed.
    """
    check_options(audience=audience, fmt=fmt, team=team, focus_version=focus_version)
    request = _make_request(
        views, settings, window=window, mine=(cluster, team), now=now, whole=fmt == "csv"
    )
    if fmt == "focus":
        return _build_focus(request, audience, team, focus_version, parquet=parquet)
    document = _list_documents()[audience](request)
    return Report(
        name=build_file_name(audience, team, request.window, fmt),
        media_type=MEDIA[fmt],
        body=_list_writers()[fmt](document),
        title=f"{document.title}, {format_window(request.window)}",
        summary=summarise(document),
    )


def _make_request(
    views: Views,
    settings: Settings,
    *,
    window: Window,
    mine: tuple[str | None, str | None],
    now: datetime,
    whole: bool,
) -> ReportRequest:
    checked_window = check_window(views, window)
    cluster, team = mine
    extent.require_names(views, checked_window, cluster=cluster, team=team)
    newest = coverage.find_newest(views, settings.ledger.max_lag, cluster)
    covered = coverage.measure_coverage(views, window, newest.behind if newest else {}, cluster)
    return ReportRequest(
        views, checked_window, Filters(cluster=cluster, team=team), settings, now, covered, whole
    )


def _list_documents() -> "dict[str, Callable[[ReportRequest], ReportDocument]]":
    try:
        from dashboards.reports import finance, sre, team  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise UsageError(f"reports are not installed: {error.name} is missing", hint=HOW) from error
    return {"finance": finance.document, "sre": sre.document, "team": team.document}


def _list_writers() -> "dict[str, Callable[[ReportDocument], bytes]]":
    from dashboards.reports import as_csv, as_html, as_md, as_pdf  # noqa: PLC0415

    return {
        "html": as_html.write,
        "pdf": as_pdf.write,
        "md": as_md.write,
        "csv": as_csv.write,
    }


def _build_focus(
    request: ReportRequest, audience: str, team: str | None, version: str, *, parquet: bool
) -> Report:
    charges = focus.read_rows(request.views, request.window, request.filters, version)
    kind = "parquet" if parquet else "focus"
    return Report(
        name=build_file_name(audience, team, request.window, kind),
        media_type=MEDIA[kind],
        body=focus.encode_parquet(charges.rows) if parquet else focus.encode_csv(charges.rows),
        title=f"FOCUS {version} charges, {format_window(request.window)}",
        summary=charges.summary,
    )


def check_options(*, audience: str, fmt: str, team: str | None, focus_version: str = "1.2") -> None:
    """Refuse options that no report can have, before any work is done.

    Raises:
        UsageError: names the wrong option and the legal values.
    """
    for option, value, answers in (
        ("report", audience, AUDIENCES),
        ("-o", fmt, FORMATS),
        ("--focus-version", focus_version, FOCUS_VERSIONS),
    ):
        if value not in answers:
            raise UsageError(f"{option} {value!r} is none of: {', '.join(answers)}")
    if audience == "team" and not team:
        raise UsageError(
            "the team's report needs a team's name", hint="fallow report team --team NAME"
        )
    if audience != "team" and team and fmt != "focus":
        raise UsageError(
            f"--team goes with the team's report, not with {audience}'s",
            hint=f"fallow report team --team {team}",
        )


def build_file_name(audience: str, team: str | None, window: Window, ending: str) -> str:
    """Return a file name that is legal in every file system, mail and bucket."""
    audience_name = "-".join(filter(None, (audience, _make_safe(team or ""))))
    days = f"{window.start:%Y%m%d}-{window.end:%Y%m%d}"
    return f"fallow-{audience_name}-{days}.{ENDINGS.get(ending, ending)}"


def _make_safe(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "_", text).strip("._-")[:60]


def summarise(document: "ReportDocument") -> str:
    """Return the first page as lines of plain text, for a mail's body or a chat."""
    figures = [
        f"{f.label}: {f.value}" + f" ({f.about})" * bool(f.about) + f"; {f.change}" * bool(f.change)
        for f in document.figures
    ]
    story = [f"{part.about}: {strip_marks(part.text)}" for part in document.story]
    blocks = (
        [*map(strip_marks, document.warnings)],
        [strip_marks(document.verdict)] * bool(document.verdict),
        figures,
        _write_actions(document),
        story,
    )
    return "\n\n".join("\n".join(lines) for lines in blocks if lines)


def _write_actions(document: "ReportDocument") -> list[str]:
    table = document.actions
    if table is None:
        return []
    lines = []
    for number, row in enumerate(table.rows, 1):
        cells = {c.name: format_cell(row[c.name], c) for c in table.columns}
        saves = f"{cells['usd']}, {cells['gpu_hours']} GPU-hours"
        place = f" in {cells['cluster']}" if "cluster" in cells else ""
        lines.append(
            f"{number}. {cells['team']}: {cells['verb']} {cells['workload']}{place} (saves {saves})"
        )
    return [f"{ACTIONS_TITLE}:", *lines]
