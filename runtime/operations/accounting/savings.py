"""Return what actions saved, as rows: stored values, and fresh ones if there is a journal."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from actions.backtest.result import compute_wilson_interval
from actions.journal import Journal, JournalState
from actions.savings.storage import measure_watched
from dashboards.figures.savings import KINDS
from fallow.money import apportion, round_to_cents
from fallow.protocols import Views
from fallow.settings import Settings
from fallow.window import Window
from runtime.operations.acting.plans import get_journal_path
from runtime.operations.queries import load_sql

if TYPE_CHECKING:
    from warehouse.lake import Warehouse

ABOUT = ("policy", "namespace", "workload_kind", "workload", "verb", "start", "end")
"""Columns of a row by action, besides its id."""
Row = dict[str, Any]


def sum_savings(
    warehouse: "Warehouse", settings: Settings, *, window: Window, by: str, now: datetime
) -> tuple[list[Row], Row]:
    """Return what actions begun in a window saved, by policy, action, team or kind, and the sum.

    Dollars are in cents: a sum is rounded once, and the groups and kinds add up to it. `usd` is
    null where a part has no price. Reversals are counted in actions: those that their owner
    reversed within 24 h, as a share with its 95 % Wilson interval.
    """
    measured = _read_rows(warehouse, settings, now)
    rows = [r for r in measured if window.start <= _to_aware_utc(r["start"]) < window.end]
    groups: dict[Any, list[Row]] = {}
    for row in rows:
        groups.setdefault(row[by], []).append(row)
    group_rows = [_sum_rows({by: key}, mine, by) for key, mine in groups.items()]
    group_rows.sort(key=lambda r: (-(r["usd"] or Decimal()), -r["gpu_hours"], str(r[by])))
    whole = _sum_rows({}, rows, "")
    whole["usd"] = None if whole["usd"] is None else round_to_cents(whole["usd"])
    for row, usd in zip(
        group_rows, apportion([r["usd"] for r in group_rows], whole["usd"]), strict=True
    ):
        row["usd"] = usd
    for row in (*group_rows, whole):
        _apportion_kinds(row)
    return group_rows, whole


def _apportion_kinds(row: Row) -> None:
    """Round the dollars of each kind so that they sum to the row's."""
    kinds = [kind for kind in KINDS if kind in row]
    for kind, usd in zip(kinds, apportion([row[k] for k in kinds], row["usd"]), strict=True):
        row[kind] = usd


def read_cases(views: Views, window: Window, cluster: str | None) -> list[Row]:
    """Return how far each case of a window came: identified, notified, acted upon, verified."""
    parameters = {**window.bounds(), "cluster": cluster}
    rows: list[Row] = views.query(load_sql("cases"), parameters).to_pylist()
    return rows


def read_action_savings(
    warehouse: "Warehouse", settings: Settings, action: str, now: datetime
) -> list[Row]:
    """Return an action's rows, one per kind."""
    return [row for row in _read_rows(warehouse, settings, now) if row["action"] == action]


def _read_rows(warehouse: "Warehouse", settings: Settings, now: datetime) -> list[Row]:
    stored: list[Row] = warehouse.query(
        "SELECT * FROM saving WHERE cluster = $c ORDER BY start, action, kind",
        {"c": settings.cluster},
    ).to_pylist()
    fresh = _measure_open(warehouse, settings, now)
    measured = {row["action"] for row in fresh}
    return [*(row for row in stored if row["action"] not in measured), *fresh]


def _measure_open(warehouse: "Warehouse", settings: Settings, now: datetime) -> list[Row]:
    """Measure the open actions now, if the journal is on this machine."""
    path = get_journal_path(settings)
    if not path.is_file():
        return []
    with Journal.open(path, lambda: now, write=False) as journal:
        record = JournalState(journal).catch_up()
        _, batch = measure_watched(
            warehouse,
            record,
            settings.cluster,
            settings.actions.watch,
            now,
            region=settings.prices.region,
        )
    rows: list[Row] = batch.rows.to_pylist()
    clusters = {row["action"]: record.actions[row["action"]].workload[0] for row in rows}
    return [row for row in rows if clusters[row["action"]] == settings.cluster]


def _sum_rows(key: Mapping[str, Any], rows: Sequence[Row], by: str) -> Row:
    actions = {row["action"]: row for row in rows}
    reversed_count = sum(bool(row["is_reversed"]) for row in actions.values())
    total: Row = dict(key)
    if by == "action" and rows:
        total |= {name: rows[0][name] for name in ABOUT}
        total["end"] = max(row["end"] for row in rows)
    total |= {
        "actions": len(actions),
        "predicted_gpu_hours": _convert_hours(rows, "predicted_gpu_hours"),
        "gpu_hours": _convert_hours(rows, "gpu_hours"),
        "unknown_gpu_hours": _convert_hours(rows, "unknown_gpu_hours"),
        "predicted_usd": _parse_usd(rows, "predicted_usd"),
        "usd": _parse_usd(rows, "usd"),
    }
    for kind in KINDS:
        total[kind] = _parse_usd([row for row in rows if row["kind"] == kind], "usd")
    total["restart_usd"] = sum((row["restart_usd"] or Decimal() for row in rows), Decimal())
    if by == "kind":
        return {name: value for name, value in total.items() if name not in KINDS}
    return total | _build_reversal_columns(reversed_count, len(actions))


def _build_reversal_columns(reversed_count: int, of: int) -> Row:
    low, high = compute_wilson_interval(reversed_count, of) if of else (0.0, 1.0)
    rate = reversed_count / of if of else None
    return {
        "reversed": reversed_count,
        "reversal_rate": rate,
        "reversal_low": low,
        "reversal_high": high,
    }


def _convert_hours(rows: Iterable[Row], name: str) -> float:
    return round(sum(row[name] or 0.0 for row in rows), 6)


def _parse_usd(rows: Iterable[Row], name: str) -> Decimal | None:
    values = [row[name] for row in rows]
    return None if any(v is None for v in values) else sum(values, Decimal())


def _to_aware_utc(timestamp: datetime) -> datetime:
    return timestamp if timestamp.tzinfo else timestamp.replace(tzinfo=UTC)
