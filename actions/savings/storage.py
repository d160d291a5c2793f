"""Store savings in a table of the warehouse, for reports and dashboards."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from actions.journal import ActionState, JournalState
from actions.savings.action_selection import select_actions
from actions.savings.forecast import HOUR_S
from actions.savings.measurement import STARTUP_S, get_window, measure_savings
from fallow.action_models import LedgerEntry
from fallow.protocols import Views
from fallow.tables import Batch
from warehouse.pricing import derive_device_rates

if TYPE_CHECKING:
    from warehouse.lake import Warehouse

MAX_DELAY = timedelta(seconds=STARTUP_S + HOUR_S)
"""This long after its watch an action is no longer measured: late rows and its restart are in."""
INTERVAL = timedelta(hours=1)


def store_savings(
    warehouse: "Warehouse", record: JournalState, cluster: str, watched: timedelta, now: datetime
) -> list[LedgerEntry]:
    """Measure the watched actions, and replace their stored savings.

    The same rows give the same result again. An action whose workload came back is still measured,
    without further savings: its prediction must not use the time of the return. After its watch the
    stored result stays.
    """
    region = warehouse.settings.prices.region
    entries, rows = measure_watched(warehouse, record, cluster, watched, now, region=region)
    if entries:
        actions = sorted({e.action for e in entries})
        condition = "cluster = $cluster AND list_contains($actions, action)"
        warehouse.replace("saving", rows.rows, condition, {"cluster": cluster, "actions": actions})
    return entries


def measure_watched(
    views: Views,
    record: JournalState,
    cluster: str,
    watched: timedelta,
    now: datetime,
    *,
    region: str = "",
) -> tuple[list[LedgerEntry], Batch]:
    """Return what actions saved so far, and the same as rows.

    Actions with a stored final result whose watch ended long ago are left out.
    """
    measured_before = _read_final(views, cluster)
    actions = [
        a
        for a in select_actions(record, watched=watched)
        if a.action not in measured_before or _is_open(a.until, now)
    ]
    if not actions:
        return [], _batch([], record, cluster, set(), now)
    rates = derive_device_rates(views, get_window(actions, now), region=region).to_pylist()
    entries = measure_savings(views, actions, rates, now)
    finished = {a.action for a in actions if a.until is not None and now > a.until}
    return entries, _batch(entries, record, cluster, finished, now)


def store_hourly(
    warehouse: "Warehouse",
    record: JournalState,
    cluster: str,
    watched: timedelta,
    notify: Callable[[Sequence[LedgerEntry]], None] = lambda _entries: None,
) -> Callable[[datetime], None]:
    """Return a function that stores savings at a given time, at most once an hour."""
    last: datetime | None = None

    def once(now: datetime) -> None:
        nonlocal last
        if last is None or now - last >= INTERVAL:
            notify(store_savings(warehouse, record, cluster, watched, now))
            last = now

    return once


def _read_final(views: Views, cluster: str) -> set[str]:
    """Return the actions whose final result is stored."""
    sql = "SELECT DISTINCT action FROM saving WHERE cluster = $c AND is_final"
    return set(views.query(sql, {"c": cluster}).column("action").to_pylist())


def _is_open(until: datetime | None, now: datetime) -> bool:
    return until is None or now - until <= MAX_DELAY


_MEASURES = (
    "predicted_gpu_hours", "gpu_hours", "predicted_usd", "usd", "restart_usd", "is_reversed",
    "held_gpu_hours", "held_usd", "unknown_gpu_hours",
)  # fmt: skip
"""Columns of `saving` that entries have by the same names."""


def _batch(
    entries: Sequence[LedgerEntry],
    record: JournalState,
    cluster: str,
    finished: set[str],
    now: datetime,
) -> Batch:
    states: list[ActionState] = [record.actions[e.action] for e in entries]
    subjects = [t.workload for t in states]
    return Batch.of(
        "saving",
        {
            "cluster": [cluster] * len(entries),
            "action": [e.action for e in entries],
            "kind": [e.kind for e in entries],
            "policy": [e.policy for e in entries],
            "team": [t.action.decision.owner for t in states],
            "namespace": [w[2] for w in subjects],
            "workload_kind": [w[1] for w in subjects],
            "workload": [w[3] for w in subjects],
            "verb": [t.action.decision.verb for t in states],
            "start": [_drop_zone(e.start) for e in entries],
            "end": [_drop_zone(e.end) for e in entries],
            "measured_at": [_drop_zone(now)] * len(entries),
            "is_final": [e.action in finished for e in entries],
            **{name: [getattr(e, name) for e in entries] for name in _MEASURES},
        },
    )


def _drop_zone(timestamp: datetime) -> datetime:
    return timestamp.astimezone(UTC).replace(tzinfo=None)
