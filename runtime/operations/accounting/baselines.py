"""Store baselines: what a window cost and what was found in it, protected against changes.

A baseline is one JSON file under `home/baselines`, written once. Its name is never used again, and
its hash is checked at every read.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fallow.errors import FallowError, UsageError
from fallow.settings import Settings
from fallow.window import Window
from runtime.operations.analysis import analyzer_runs
from runtime.operations.queries import load_sql

if TYPE_CHECKING:
    from runtime.operations.analysis.analyzer_runs import Analysis
    from warehouse.lake import Warehouse

SCHEMA = "fallow.baseline/v1"
RESERVED = ("save", "list", "show", "compare")
DAY_H = 24.0

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class BaselineError(FallowError):
    """Report that a stored baseline was changed."""


def measure(
    warehouse: "Warehouse",
    settings: Settings,
    window: str | None,
    *,
    now: datetime,
    cluster: str | None,
) -> dict[str, Any]:
    """Return what a window cost by team, model and state, and what all analyzers find in it.

    Keys: window, hours, cluster, bill, ledger (rows team, model, state, gpu_hours, usd), findings
    (rows analyzer, effort, saving, evidence, count, gpu_hours, usd: what they save together).
    """
    analysis = analyzer_runs.analyze(warehouse, settings, (), window, now=now, cluster=cluster)
    span = analysis.window
    parameters = {"since": span.start, "until": span.end, "cluster": cluster}
    return {
        "window": {"start": _format_time(span.start), "end": _format_time(span.end)},
        "hours": _count_whole_hours(span),
        "cluster": cluster,
        "bill": {"gpu_hours": analysis.waterfall.bill.gpu_hours, "usd": _format_usd(analysis)},
        "ledger": [
            _encode_usd(row)
            for row in warehouse.query(load_sql("baseline"), parameters).to_pylist()
        ],
        "findings": _sum_findings(analysis),
        "notes": list(analysis.notes),
    }


def check_name(settings: Settings, name: str) -> None:
    """Refuse a name that is not legal or exists already.

    Raises:
        UsageError: the name is refused.
    """
    if not _NAME.fullmatch(name) or name in RESERVED:
        raise UsageError(
            f"{name!r} is no name for a baseline",
            hint=f"letters, digits, dot, dash and underscore, up to 64; not {', '.join(RESERVED)}",
        )
    if _get_path(settings, name).exists():
        raise UsageError(
            f"there is a baseline {name!r} already, and baselines do not change",
            hint="choose another name; fallow baseline list shows those taken",
        )


def save(settings: Settings, name: str | None, measured: Mapping[str, Any], now: datetime) -> Path:
    """Write a baseline once; its default name is its window's last day.

    Raises:
        UsageError: the name is taken or not legal.
    """
    file_name = name or f"until-{measured['window']['end'][:10]}"
    check_name(settings, file_name)
    body = {"schema": SCHEMA, "name": file_name, "made_at": _format_time(now), **measured}
    body["sha256"] = _hash(body)
    path = _get_path(settings, file_name)
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(json.dumps(body, indent=2) + "\n")
    except FileExistsError:  # another process was faster
        check_name(settings, file_name)
    path.chmod(0o400)
    return path


def read(settings: Settings, name: str) -> dict[str, Any]:
    """Return a stored baseline.

    Raises:
        UsageError: no baseline has that name.
        BaselineError: the file was changed.
    """
    path = _get_path(settings, name)
    if not _NAME.fullmatch(name) or not path.is_file():
        names = ", ".join(sorted(p.stem for p in path.parent.glob("*.json"))) or "none"
        raise UsageError(f"there is no baseline {name!r}", hint=f"stored: {names}")
    damaged = f"{path} is not the baseline that was stored: its hash differs"
    try:
        body: dict[str, Any] = dict(json.loads(path.read_text(encoding="utf-8")))
        stored_hash = body.pop("sha256")
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise BaselineError(damaged, hint="restore it from a backup") from error
    if stored_hash != _hash(body):
        raise BaselineError(damaged, hint="restore it from a backup, or save a new one")
    return {**body, "sha256": stored_hash}


def decode_usd(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return a baseline with its dollars as numbers; stored, they are text, exact for the hash."""
    decoded = {**body, "bill": {**body["bill"], "usd": _parse_decimal(body["bill"]["usd"])}}
    for name in ("ledger", "findings"):
        decoded[name] = [{**row, "usd": _parse_decimal(row["usd"])} for row in body[name]]
    return decoded


def list_baselines(settings: Settings) -> list[dict[str, Any]]:
    """Return a row per stored baseline, in name order; a row shows whether its file was changed."""
    rows: list[dict[str, Any]] = []
    for path in sorted(_get_path(settings, "x").parent.glob("*.json")):
        try:
            body = read(settings, path.stem)
        except BaselineError:
            rows.append({"name": path.stem, "status": "changed since it was stored"})
            continue
        rows.append(
            {
                "name": body["name"],
                "status": "ok",
                "start": datetime.fromisoformat(body["window"]["start"]).replace(tzinfo=None),
                "end": datetime.fromisoformat(body["window"]["end"]).replace(tzinfo=None),
                "gpu_hours": body["bill"]["gpu_hours"],
                "usd": _parse_decimal(body["bill"]["usd"]),
                "findings": sum(row["count"] for row in body["findings"]),
                "sha256": body["sha256"][:12],
            }
        )
    return rows


def compare(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return what changed, per day of each window, because windows differ in length.

    Rows: what, before and after in GPU-hours and dollars a day, the change of each in percent.
    """
    was, now = _sum_totals(before), _sum_totals(after)
    rows = []
    for label in dict.fromkeys([*was, *now]):
        old, new = was.get(label, _NOTHING), now.get(label, _NOTHING)
        rows.append(
            {
                "what": label,
                "before_gpu_hours_per_day": _compute_daily(old[0], before),
                "after_gpu_hours_per_day": _compute_daily(new[0], after),
                "gpu_hours_change_pct": _change(
                    _compute_daily(old[0], before), _compute_daily(new[0], after)
                ),
                "before_usd_per_day": _compute_daily(old[1], before),
                "after_usd_per_day": _compute_daily(new[1], after),
                "usd_change_pct": _change(
                    _compute_daily(old[1], before), _compute_daily(new[1], after)
                ),
            }
        )
    return rows


_NOTHING = (0.0, Decimal(0))


def _sum_totals(body: Mapping[str, Any]) -> dict[str, tuple[float, Decimal | None]]:
    totals = {"the bill": (body["bill"]["gpu_hours"], _parse_decimal(body["bill"]["usd"]))}
    for key, title in (("state", "state {}"), ("team", "team {}")):
        for row in body["ledger"]:
            _add(totals, title.format(row[key]), row)
    for row in body["findings"]:
        _add(totals, f"savings of {row['analyzer']}", row)
    return totals


def _add(totals: dict[str, Any], label: str, row: Mapping[str, Any]) -> None:
    hours, usd = totals.get(label, _NOTHING)
    more = _parse_decimal(row["usd"])
    totals[label] = (
        hours + row["gpu_hours"],
        None if usd is None or more is None else usd + more,
    )


def _compute_daily(value: float | Decimal | None, body: Mapping[str, Any]) -> float | None:
    return None if value is None else float(value) / body["hours"] * DAY_H


def _change(old: float | None, new: float | None) -> float | None:
    return None if not old or new is None else round(100 * (new / old - 1), 3) + 0.0


def _sum_findings(analysis: "Analysis") -> list[dict[str, Any]]:
    steps = analysis.waterfall.steps
    keys = dict.fromkeys((s.analyzer, s.effort, s.saving, s.evidence) for s in steps)
    rows = []
    for analyzer, effort, saving, evidence in sorted(keys):
        only = {"analyzer": analyzer, "effort": effort, "saving": saving, "evidence": evidence}
        mine = [s for s in steps if all(getattr(s, k) == v for k, v in only.items())]
        saved = analysis.waterfall.saved(**only)
        rows.append(
            {
                **only,
                "count": len({s.finding for s in mine}),
                "gpu_hours": saved.gpu_hours,
                "usd": None if saved.usd is None else str(saved.usd),
            }
        )
    return rows


def _encode_usd(row: Mapping[str, Any]) -> dict[str, Any]:
    return {**row, "usd": None if row["usd"] is None else str(row["usd"])}


def _format_usd(analysis: "Analysis") -> str | None:
    usd = analysis.waterfall.bill.usd
    return None if usd is None else str(usd)


def _parse_decimal(text: str | None) -> Decimal | None:
    return None if text is None else Decimal(text)


def _count_whole_hours(window: Window) -> float:
    """Return the length of the ledger's hours that a window touches."""
    first = window.start.replace(minute=0, second=0, microsecond=0)
    hours = -((first - window.end).total_seconds() // 3600)
    return float(hours)


def _format_time(timestamp: datetime) -> str:
    return timestamp.astimezone(UTC).isoformat(timespec="seconds")


def _get_path(settings: Settings, name: str) -> Path:
    return settings.home / "baselines" / f"{name}.json"


def _hash(body: Mapping[str, Any]) -> str:
    whole = json.dumps(body, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(whole.encode()).hexdigest()
