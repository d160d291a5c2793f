"""Provide the parts of every page: request, cards that load separately, safe text."""

import logging
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from contextvars import ContextVar
from datetime import date, timedelta
from typing import Any, Literal

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import streamlit as st

from dashboards import active_settings, data, links, table_widths
from dashboards.charts import Chart
from dashboards.figures import analysis_runs, data_health, reconciliation
from dashboards.figures.extent import DataExtent
from dashboards.figures.query import Filters
from dashboards.figures.savings import Stages
from dashboards.figures.spend import SpendTotals
from dashboards.figures.waterfall import GpuHourWaterfall
from dashboards.signin import Person
from dashboards.text import (
    LONGEST,
    convert_exact,
    escape,
    format_hours,
    format_hours_with_share,
    format_missing,
    format_money,
    format_share,
)
from fallow.csv_cells import write_rows
from fallow.demo_marker import is_demo_home
from fallow.errors import FallowError, TemporaryError, UnreadableDaysError, format_days
from fallow.resources import read_groups, read_table
from fallow.rows import Row
from fallow.settings import Settings
from fallow.texts import spell_out
from fallow.window import Window
from warehouse.coverage import WindowCoverage

log = logging.getLogger("fallow.dashboard")
__all__ = [
    "FigureCell",
    "PageRequest",
    "chart",
    "choose_by",
    "complain",
    "configure_number",
    "configure_percent",
    "configure_time",
    "configure_usd",
    "configure_workload",
    "convert_exact",
    "escape",
    "explain",
    "format_hours",
    "format_hours_with_share",
    "format_money",
    "format_share",
    "guard",
    "name",
    "note",
    "show_card",
    "show_demo",
    "show_heading",
    "show_metrics",
    "show_no_data",
    "show_nothing",
    "show_table",
    "spell_out",
]


MOST_COLUMNS = 5
"""Figures side by side; more of them take two rows, so that their lines are not cut."""
RISES: Mapping[str, Literal["normal", "inverse", "off"]] = {
    "good": "normal", "bad": "inverse", "neutral": "off",
}  # fmt: skip
FIGURES = {row["label"]: row for row in read_table("dashboards", "figures.csv")}
"""What the figures of pages are, by label."""
OPENED = "row-opened"
WHOLE_ROWS, MOST_ROWS = 15, 11
"""How many rows of one line a table shows: all of up to 15, of more the first eleven."""
NAME_PX, MOST_ON_PHONE = 250, 240
"""Pixels of a column of names, and characters of a sentence in a phone's list."""
TIME_PX = 130
MOST_OFFERED = 500
"""Rows in the box that opens them: a browser gets their names with each drawing."""
THREE_DIGITS = "%,.3g"
"""The format of a table's numbers, as `text.three_digits` writes them."""


class PageRequest(msgspec.Struct, frozen=True):
    """The request of a page: the URL's window and filters, the person, and the data."""

    window: Window
    filters: Filters
    extent: DataExtent
    coverage: WindowCoverage
    person: Person
    settings: Settings


_REQUEST: ContextVar[PageRequest | None] = ContextVar("request", default=None)
"""The request of the card that is drawn in this thread."""


def show_card(
    body: Callable[[PageRequest], None], request: PageRequest, *, height: int = 160
) -> None:
    """Draw one part of a page separately; a failure stays inside it.

    `height`: height of the placeholder, in pixels; 0 = none.
    """

    def guarded() -> None:
        _REQUEST.set(request)
        with st.skeleton(height=height) if height else nullcontext():
            guard(body, request)

    guarded.__module__, guarded.__qualname__ = body.__module__, body.__qualname__
    st.fragment(guarded, parallel=True)()


def query_audit_banner(window: Window) -> str | None:
    """Return the banner of the audits that fail on the days of a window; None = all pass.

    Whole days: windows that slide by minutes or hours share one result.
    """
    return data.query_rarely(data_health.read_audits, window.whole(timedelta(days=1)))


def guard(body: Callable[..., None], *args: Any) -> None:
    """Run a part of a page; a failure is shown as a sentence, never as a traceback."""
    try:
        body(*args)
    except UnreadableDaysError as error:
        show_unreadable(error.days)
    except TemporaryError as error:
        complain(error)
        st.button("Try again", key=f"again-{body.__module__}.{body.__qualname__}")
    except FallowError as error:
        complain(error)
    except Exception:
        log.exception("a part of a page failed", extra={"part": body.__qualname__})
        st.error(
            "This part of the page failed. It is a defect of Fallow; the dashboard's log has "
            "the details.",
            icon=":material/error:",
        )


def show_demo() -> None:
    """Say at the top of a page that its fleet is simulated, if it is."""
    if is_demo_home(active_settings.get_settings().home):
        st.markdown(
            ":blue-background[:material/science: **Demo data:** this fleet is simulated, none of "
            "it is yours. `fallow demo` wrote it.]"
        )


def show_unreadable(days: Sequence[date]) -> None:
    """Show, in the place of figures or above rows by time, which days they lack; none = nothing."""
    if days:
        count = f"{len(days)} day{'s' * (len(days) != 1)}"
        st.warning(
            f"**unknown: {count} not readable** ({format_days(days)}). They are archived, and the "
            "cold tier does not answer. Nothing is lost; a window after them needs none of them.",
            icon=":material/cloud_off:",
        )


def show_heading(text: str) -> None:
    """Show the title of a card. The text is our own."""
    st.header(text, anchor=False)


def note(text: str) -> None:
    """Show how to read a figure. The text is our own; names in it go through `plain`."""
    st.caption(text)


def show_no_data(request: PageRequest) -> None:
    """Show that nothing is accounted for the filters in this window."""
    if request.filters.named:
        show_no_cases(request, "Nothing is accounted")
        return
    show_nothing(
        "No hour of this window is accounted yet.",
        "`fallow up` writes the ledger every five minutes; `fallow collect --once` writes it now.",
    )


def show_no_cases(request: PageRequest, missing: str) -> None:
    """Show that the filters leave nothing; `missing` is our own text, such as `It has no case`."""
    filter_text = ", ".join(
        f"{key} {escape(name, 40)}" for key, name in request.filters.named.items()
    )
    show_nothing(
        f"{missing} for {filter_text} in this window.",
        "Check the spelling, clear a filter, or choose a longer window.",
    )


def show_nothing(missing: str, then: str) -> None:
    """Show that there is nothing to show, and what to do. Both texts are our own."""
    st.info(f"**{missing}** {then}", icon=":material/inbox:")


def show_no_findings(
    request: PageRequest, analyzers: Sequence[str], missing: str, then: str
) -> None:
    """Show why there is no finding of these analyzers (none = any): none found, or not judged."""
    absence = data.query(analysis_runs.explain_absence, request.window, tuple(analyzers))
    if request.coverage.hours_with_data < request.coverage.hours:
        # Of hours without data nothing is known.
        missing = f"{missing.removesuffix('.')}: {request.coverage.spoken}."
    if not absence.why:
        show_nothing(missing, then)
        return
    show_nothing(absence.summary or missing, " ".join(escape(why, 600) for why in absence.why))


def show_table(
    rows: pa.Table | Sequence[dict[str, Any]],
    columns: dict[str, Any],
    *,
    table_name: str,
    key: str | None = None,
    on_select: Callable[[], None] | None = None,
    open_row: Callable[[int], None] | None = None,
    row_names: Sequence[str] | None = None,
    missing: str = "unknown",
    in_csv: Collection[str] = (),
    total: Mapping[str, Any] | None = None,
    on_phone: Sequence[str] = (),
) -> None:
    """Show rows as a table: `columns` maps a row's column to `st.column_config`, in order.

    Cells are drawn, not parsed: a name is shown as it is. Numbers have three significant digits,
    counts all of them. The download below it has the same rows as CSV without formulas; numbers
    keep their digits there, and columns for which a screen of 1,280 pixels has no room
    (`table_widths.fit_columns`). Sentences take up to three lines. `on_select` is called when a row
    was clicked; `st.session_state[key]` says which. A click on any cell of a row calls `open_row`
    with the row's number, which asks for the page of its details (`links.open_page`); `row_names`
    are the rows in the box that opens them by keyboard, where the first column does not name them.
    `missing` is shown where a number is null: say why where the reason is known. Columns in
    `in_csv` are in the download alone, though they might fit. Rows that are of several clusters
    name theirs. `total` is the row of totals (`sum_rows`), above the others: it is in sight however
    many they are, opens nothing, and the download is without it. `on_phone`: the columns of
    dollars, what and why; a phone shows the first rows as a list of them
    above the table.
    """
    formatted, columns = _format_table(rows, _name_clusters(rows, columns), total)
    names, above = formatted.column_names, int(bool(total and formatted.num_rows))
    room = table_widths.PAGE_PX - (table_widths.CHOICE_PX if on_select else 0)
    offered = {n: column for n, column in columns.items() if n not in in_csv}
    on_screen = table_widths.fit_columns(offered, formatted, room)
    row_px = table_widths.choose_row_height(
        {n: on_screen[n] for n in on_screen if table_widths.is_long(columns[n])}, formatted
    )
    opening = f"open-{to_file_name(table_name)}"

    def opened() -> None:
        cells = st.session_state[opening].selection.cells
        if cells and open_row and cells[0][0] >= above:
            open_row(cells[0][0] - above)
            st.session_state[OPENED] = True

    if on_phone:
        with st.container(key=f"phone-{to_file_name(table_name)}"):
            st.markdown(_list_for_phone(formatted, on_phone))
    st.dataframe(
        formatted.select([*offered]),
        column_config=offered | on_screen,
        column_order=[*on_screen],
        hide_index=True,
        height=_choose_height(formatted.num_rows, row_px),
        row_height=row_px,
        placeholder=missing,
        alt=table_name,
        key=opening if open_row else key,
        on_select=opened if open_row else on_select or "ignore",
        # A click anywhere in a row chooses it.
        selection_mode="single-cell" if open_row else ("single-row", "single-cell"),
    )
    if st.session_state.pop(OPENED, False):
        st.rerun()
    formatted = formatted.slice(above)
    if formatted.num_rows:
        with st.container(horizontal=True, vertical_alignment="center"):
            more = [columns[n]["label"] or n for n in names if n not in on_screen]
            _offer_csv(formatted, table_name, key or table_name, more)
            if open_row:
                _offer_rows(row_names or formatted.column(0).to_pylist(), table_name, open_row)


def _add_total(rows: pa.Table, total: Mapping[str, Any]) -> pa.Table:
    """Return the rows below their total, whose dollars may have more digits than theirs."""
    wide = [
        field.with_type(pa.decimal128(38, field.type.scale))
        if pa.types.is_decimal(field.type)
        else field
        for field in rows.schema
    ]
    first = pa.Table.from_pylist([{n: total.get(n) for n in rows.column_names}], pa.schema(wide))
    return pa.concat_tables([first, rows.cast(first.schema)])


def _format_table(
    rows: pa.Table | Sequence[dict[str, Any]],
    columns: dict[str, Any],
    total: Mapping[str, Any] | None,
) -> tuple[pa.Table, dict[str, Any]]:
    """Return the cells below their total, and the configuration of each column for them."""
    table = _build_table(rows, columns)
    if total and table.num_rows:
        table = _add_total(table, total)
    columns = {name: _configure(columns[name], table[name]) for name in table.column_names}
    cells = {name: _format_column(table[name], column) for name, column in columns.items()}
    return pa.table(cells), columns


def _list_for_phone(rows: pa.Table, columns: Sequence[str]) -> str:
    """Return the first rows as a list: dollars, then what it is about, then why."""
    usd, *others = columns
    lines = []
    for row in rows.slice(0, MOST_ROWS).select([*columns]).to_pylist():
        cells = [str(row[name]) for name in others if row[name]]
        texts = [escape(cell, MOST_ON_PHONE if " " in cell else LONGEST) for cell in cells]
        dollars = format_missing() if row[usd] is None else format_money(row[usd])
        lines.append(f"- **{dollars}** {': '.join(texts)}")
    return "\n".join(lines)


def _choose_height(rows: int, row_px: int) -> int | Literal["content"]:
    """Return the height of a table: all of a short one, whole rows of a long one."""
    room = WHOLE_ROWS * table_widths.ROW_PX // row_px
    if rows <= room:
        return "content"
    return row_px * min(MOST_ROWS, room) + table_widths.ROW_PX + 2


def sum_rows(rows: pa.Table, columns: Collection[str], **others: Any) -> dict[str, Any]:
    """Return the row of totals: sums of the columns with what is known, and the `others`."""
    sums: dict[str, Any] = {}
    for column in columns:
        amounts = rows[column].drop_null().to_pylist()
        sums[column] = sum(amounts[1:], amounts[0]) if amounts else None
    return sums | others


def compute_percent(part: Any, whole: Any) -> float | None:
    """Return a part in percent of a whole; None = unknown, or of nothing."""
    return None if part is None or not whole else 100 * float(part) / float(whole)


def _name_clusters(
    rows: pa.Table | Sequence[dict[str, Any]], columns: dict[str, Any]
) -> dict[str, Any]:
    """Return the columns, with that of the cluster after the first where rows are of several."""
    if "cluster" in columns:
        return columns
    if isinstance(rows, pa.Table):
        clusters = rows["cluster"].to_pylist() if "cluster" in rows.column_names else []
    else:
        clusters = [row.get("cluster") for row in rows]
    if len({cluster for cluster in clusters if cluster is not None}) <= 1:
        return columns
    (first, column), *others = columns.items()
    return {first: column, "cluster": name("cluster", 80), **dict(others)}


def _build_table(rows: pa.Table | Sequence[dict[str, Any]], columns: Collection[str]) -> pa.Table:
    """Return rows as a table with the columns that both have, in the order of `columns`."""
    if not isinstance(rows, pa.Table):
        # A row may have more than its cells: documents, which are no columns.
        rows = pa.Table.from_pylist([{n: row[n] for n in row if n in columns} for row in rows])
    return rows.select([column for column in columns if column in rows.column_names])


def _offer_csv(rows: pa.Table, table_name: str, key: str, more: Sequence[str]) -> None:
    """Show the download of a table's rows; `more` are the columns that only it has."""
    st.download_button(
        "CSV",
        lambda: _to_csv(rows),
        file_name=f"{to_file_name(table_name)}.csv",
        mime="text/csv",
        key=f"csv-{key}",
        help=f"Download: {table_name}" + f"; also {', '.join(more)}" * bool(more),
        on_click="ignore",
        type="tertiary",
        icon=":material/download:",
    )


def _offer_rows(row_names: Sequence[str], table_name: str, open_row: Callable[[int], None]) -> None:
    """Show a box that opens a row by its name: a table's cells are not within reach of keys."""
    key = f"row-of-{to_file_name(table_name)}"
    offered = min(len(row_names), MOST_OFFERED)
    first = f" of the first {offered:,}" if offered < len(row_names) else ""

    def chosen() -> None:
        row = st.session_state[key]
        if row is not None:
            st.session_state[key] = None
            open_row(row)
            st.session_state[OPENED] = True

    st.selectbox(
        f"Open a row of: {table_name}",
        range(offered),
        index=None,
        key=key,
        placeholder=f"click a row, or choose one{first} here",
        format_func=lambda row: spell_out(str(row_names[row])) if row < len(row_names) else "",
        label_visibility="collapsed",
        width=300,
        on_change=chosen,
    )


def to_file_name(text: str) -> str:
    """Return a text as the name of a file: letters and digits, the rest as one dash."""
    return "-".join(re.findall(r"[a-z0-9]+", text.lower())) or "table"


def _to_csv(rows: pa.Table) -> bytes:
    columns = [pc.round(c, 6) if pa.types.is_floating(c.type) else c for c in rows.columns]
    lines = [rows.column_names, *zip(*(c.to_pylist() for c in columns), strict=True)]
    return write_rows(lines).encode()


def configure_usd(label: str, help_text: str | None = None, *, cents: bool = False) -> Any:
    """Return the configuration of a column of dollars: three significant digits, or to the cent.

    Cents are for statements, whose rows people add up.
    """
    digits = "dollar" if cents else f"${THREE_DIGITS}"
    return st.column_config.NumberColumn(label, format=digits, help=help_text)


def configure_number(label: str, help_text: str | None = None) -> Any:
    """Return the configuration of a column of GPU-hours or counts."""
    return st.column_config.NumberColumn(label, format=THREE_DIGITS, help=help_text)


def name(label: str, width: Literal["small", "medium", "large"] | int = "medium") -> Any:
    """Return the configuration of a column of names: drawn as they are, whatever they contain.

    `width`: 75, 200 or 400 pixels by its word, or pixels.
    """
    return st.column_config.TextColumn(label, width=width)


def configure_workload(label: str = "workload") -> Any:
    """Return the configuration of a column of workloads: on a phone the next figures fit beside."""
    return st.column_config.TextColumn(label, width=NAME_PX)


def configure_time(label: str) -> Any:
    """Return the configuration of a column of timestamps (UTC)."""
    return st.column_config.DatetimeColumn(label, format="YYYY-MM-DD HH:mm", timezone="UTC")


def configure_percent(label: str, help_text: str | None = None, *, bar: bool = True) -> Any:
    """Return the configuration of a column of percentages: a bar and the number, or the number."""
    if not bar:
        return st.column_config.NumberColumn(label, format="%.1f%%", help=help_text)
    return st.column_config.ProgressColumn(
        label, format="%.1f%%", min_value=0, max_value=100, help=help_text
    )


class ColumnWords(Row, frozen=True):
    """One row of `views/columns.csv`: a column of a table, its kind, heading, help and width."""

    table: str
    column: str
    kind: str
    label: str
    about: str
    width: str


def read_columns(table: str) -> dict[str, Any]:
    """Return the configuration of a table's columns by name, in their order."""
    rows = read_groups("dashboards.views", "columns.csv", ColumnWords)[table]
    return {words.column: _configure_column(words) for words in rows}


def _configure_column(words: ColumnWords) -> Any:
    about = words.about or None
    match words.kind:
        case "name":
            return name(words.label, _parse_width(words.width))
        case "usd" | "cents":
            return configure_usd(words.label, about, cents=words.kind == "cents")
        case "percent" | "share":
            return configure_percent(words.label, about, bar=words.kind == "percent")
        case "link":
            return links.configure_column(words.label, words.about or "timeline")
        case _:
            configure = _CONFIGURE[words.kind]
            return configure(words.label, about) if about else configure(words.label)


def _parse_width(width: str) -> Any:
    return int(width) if width.isdigit() else width or "medium"


_CONFIGURE: Mapping[str, Callable[..., Any]] = {
    "number": configure_number, "time": configure_time, "workload": configure_workload,
}  # fmt: skip


class FigureCell(msgspec.Struct, frozen=True):
    """One figure: its label, value, a line about it, and its change against the window before."""

    label: str
    value: str
    about: str = ""
    change: float | None = None
    """As a share: 0.1 is 10 % more than before."""
    before: str = ""
    """What it was before, or why that is unknown; empty = nobody asked."""
    rise: Literal["good", "bad", "neutral"] = "neutral"


def show_metrics(*cells: tuple[str, str, str] | FigureCell) -> None:
    """Show figures side by side: label, value and one line about it. All texts are our own.

    The help of a figure says what it is, its window and coverage, and its source.
    """
    figures = [cell if isinstance(cell, FigureCell) else FigureCell(*cell) for cell in cells]
    wide = len(figures) if len(figures) <= MOST_COLUMNS else -(-len(figures) // 2)
    for first in range(0, len(figures), wide):
        for column, cell in zip(st.columns(wide), figures[first : first + wide], strict=False):
            with column:
                _show_metric(cell)


def _show_metric(cell: FigureCell) -> None:
    compared = cell.change is not None
    st.metric(
        cell.label,
        cell.value,
        (f"{cell.change:+.1%}" if compared else cell.about) or None,
        delta_color=RISES[cell.rise] if compared else "off",
        delta_arrow="auto" if compared else "off",
        delta_description=(cell.about or None) if compared else None,
        help=explain(cell),
        border=True,
        height="stretch",
    )


def explain(cell: FigureCell) -> str | None:
    """Return what a figure is, with its window, coverage and source; None = it is not listed."""
    word = FIGURES.get(cell.label)
    if word is None:
        return None
    parts = [f"{word['meaning']}."]
    if cell.change is not None:
        parts.append(f"{cell.before[0].upper()}{cell.before[1:]}.")
    elif cell.before:
        parts.append(f"Its change is unknown: {cell.before}.")
    request = _REQUEST.get()
    if request is not None:
        span = f"{request.window.start:%Y-%m-%d %H:%M} to {request.window.end:%Y-%m-%d %H:%M} UTC"
        parts.append(f"Window: {span}, {request.coverage.spoken}.")
    return "  \n".join([*parts, f"Source: {word['source']}."])


def show_reconciliation(
    request: PageRequest,
    waterfall_total: GpuHourWaterfall,
    totals: SpendTotals,
    stages: Stages,
    first: str = "",
) -> None:
    """Show how idle hours relate to findings, and possible savings to waste.

    `first`: what the note says before.
    """
    lines = [first]
    sums = reconciliation.reconcile(waterfall_total, totals, stages, request.filters)
    if sums is not None:
        sums = msgspec.structs.replace(
            sums,
            in_use_by=tuple(map(escape, sums.in_use_by)),
            at_most_by=tuple(map(escape, sums.at_most_by)),
        )
        lines += [sums.idle(), sums.savings(lambda usd: format_money(usd, cents=True))]
    elif stages.saveable:
        lines.append(
            "What could be saved is counted over all pools and in fully loaded dollars: it is "
            "not a part of the figures beside it."
        )
    if any(lines):
        note("  \n".join(filter(None, lines)))


def choose_by(keys: Sequence[str], first: str = "team") -> str:
    """Let people choose the grouping of a table; the choice is in the URL."""
    choice = st.segmented_control(
        "By", [*keys], default=first, required=True, key="by", bind="query-params"
    )
    return choice or first


def chart(drawing: Chart, alt: str) -> None:
    """Show a chart with a text for people who cannot see it."""
    st.altair_chart(drawing, alt=alt)


def complain(error: FallowError) -> None:
    """Show what failed and what to do next."""
    box = st.warning if isinstance(error, TemporaryError) else st.error
    text = f"**{escape(error.message, 400)}**"
    box(f"{text}\n\n{escape(error.hint, 400)}" if error.hint else text)


def _configure(column_config: Any, column: pa.ChunkedArray) -> Any:
    """Return a column's configuration for its rows.

    Counts are whole, times that may be none are text, and percentages that may be unknown have no
    bar.

    A time that is null did not happen: its cell is empty, and not `unknown`.
    """
    kind = column_config.get("type_config") or {}
    is_time = pa.types.is_timestamp(column.type) or kind.get("type") == "datetime"
    if is_time and column.null_count:
        return name(
            column_config["label"], "small" if column.null_count == len(column) else TIME_PX
        )
    if kind and column.null_count and len(column_config["label"] or "") <= len("unknown"):
        # The browser makes a column as wide as its title and its numbers.
        column_config = {**column_config, "width": "small"}
    if kind.get("type") == "progress" and column.null_count:  # a bar of null is an empty cell
        return {
            **st.column_config.NumberColumn(
                column_config["label"], format=kind["format"], help=column_config["help"]
            ),
            "width": column_config["width"],
        }
    if kind.get("format") != THREE_DIGITS or not _is_count(column):
        return column_config
    return {**column_config, "type_config": {**kind, "format": "localized"}}


def _is_count(column: pa.ChunkedArray) -> bool:
    if pa.types.is_floating(column.type):
        return bool(pc.all(pc.equal(column, pc.round(column))).as_py())
    return bool(pa.types.is_integer(column.type))


def _format_column(column: pa.ChunkedArray, column_config: Any) -> pa.ChunkedArray:
    """Spell out control characters; write times and texts of which some are null as text."""
    is_text = (column_config.get("type_config") or {}).get("type") == "text"
    if pa.types.is_null(column.type) and is_text:  # a column of times or names without any
        return pa.chunked_array([pa.array([""] * len(column), pa.string())])
    if pa.types.is_timestamp(column.type) and column.null_count:
        return pc.fill_null(pc.strftime(column, format="%Y-%m-%d %H:%M"), "")
    if pa.types.is_string(column.type):
        filled = pc.fill_null(column, "")
        # Most columns have nothing to spell out; Python would read each of 10,000 names.
        if pc.all(pc.and_(pc.string_is_ascii(filled), pc.ascii_is_printable(filled))).as_py():
            return filled
        return pa.array([spell_out(t) for t in filled.to_pylist()], pa.string())
    return column
