"""Keep what was saved as a noun of the warehouse, so that reports and dashboards read it."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from actions.journal import Record, Told
from actions.savings.forecast import HOUR_S
from actions.savings.measuring import STARTUP_S, measure, window
from actions.savings.standing import acted_of
from fallow.acting import LedgerEntry
from fallow.seams import Views
from fallow.tables import Batch

if TYPE_CHECKING:
    from warehouse.lake import Warehouse

LATE = timedelta(seconds=STARTUP_S + HOUR_S)
"""So long after its watch an action is measured no more: late rows are in, its restart is too."""
EVERY = timedelta(hours=1)


def keep(
    warehouse: "Warehouse", record: Record, cluster: str, watched: timedelta, now: datetime
) -> list[LedgerEntry]:
    """Measure the actions that are watched, and put that in the place of what was kept.

    The same rows give the same rows again. What came back is measured on, and saves no more: what
    was predicted of it must not know when it did. After its watch it is left as it was measured.
    """
    region = warehouse.settings.prices.region
    entries, rows = measured(warehouse, record, cluster, watched, now, region=region)
    if entries:
        actions = sorted({e.action for e in entries})
        where = "cluster = $cluster AND list_contains($actions, action)"
        warehouse.replace("saving", rows.rows, where, {"cluster": cluster, "actions": actions})
    return entries


def measured(
    views: Views,
    record: Record,
    cluster: str,
    watched: timedelta,
    now: datetime,
    *,
    region: str = "",
) -> tuple[list[LedgerEntry], Batch]:
    """Return what actions saved so far, and that as rows.

    Those whose watch is over for long, and that were kept since, are left out.
    """
    from warehouse.pricing import device_rates  # noqa: PLC0415  (the engine loads in 0.3 s)

    final = _final(views, cluster)
    acts = [
        a for a in acted_of(record, watched=watched) if a.action not in final or _open(a.until, now)
    ]
    if not acts:
        return [], _batch([], record, cluster, set(), now)
    rates = device_rates(views, window(acts, now), region=region).to_pylist()
    entries = measure(views, acts, rates, now)
    over = {a.action for a in acts if a.until is not None and now > a.until}
    return entries, _batch(entries, record, cluster, over, now)


def hourly(
    warehouse: "Warehouse",
    record: Record,
    cluster: str,
    watched: timedelta,
    told: Callable[[Sequence[LedgerEntry]], None] = lambda _entries: None,
) -> Callable[[datetime], None]:
    """Return what keeps savings at a moment, unless it did within the hour."""
    last: datetime | None = None

    def once(now: datetime) -> None:
        nonlocal last
        if last is None or now - last >= EVERY:
            told(keep(warehouse, record, cluster, watched, now))
            last = now

    return once


def _final(views: Views, cluster: str) -> set[str]:
    """Return the actions that were measured when they were over."""
    asked = "SELECT DISTINCT action FROM saving WHERE cluster = $c AND is_final"
    return set(views.query(asked, {"c": cluster}).column("action").to_pylist())


def _open(until: datetime | None, now: datetime) -> bool:
    return until is None or now - until <= LATE


def _batch(
    entries: Sequence[LedgerEntry], record: Record, cluster: str, over: set[str], now: datetime
) -> Batch:
    told: list[Told] = [record.actions[e.action] for e in entries]
    whom = [t.workload for t in told]
    return Batch.of(
        "saving",
        {
            "cluster": [cluster] * len(entries),
            "action": [e.action for e in entries],
            "kind": [e.kind for e in entries],
            "policy": [e.policy for e in entries],
            "team": [t.action.decision.owner for t in told],
            "namespace": [w[2] for w in whom],
            "workload_kind": [w[1] for w in whom],
            "workload": [w[3] for w in whom],
            "verb": [t.action.decision.verb for t in told],
            "start": [_naive(e.start) for e in entries],
            "end": [_naive(e.end) for e in entries],
            "measured_at": [_naive(now)] * len(entries),
            "is_final": [e.action in over for e in entries],
            "predicted_gpu_hours": [e.predicted_gpu_hours for e in entries],
            "gpu_hours": [e.gpu_hours for e in entries],
            "predicted_usd": [e.predicted_usd for e in entries],
            "usd": [e.usd for e in entries],
            "restart_usd": [e.restart_usd for e in entries],
            "is_regretted": [e.regretted for e in entries],
            "held_gpu_hours": [e.held_gpu_hours for e in entries],
            "held_usd": [e.held_usd for e in entries],
            "unknown_gpu_hours": [e.unknown_gpu_hours for e in entries],
        },
    )


def _naive(moment: datetime) -> datetime:
    return moment.astimezone(UTC).replace(tzinfo=None)
