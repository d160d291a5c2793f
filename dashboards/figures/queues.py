"""Show queues: which workloads wait for GPUs, how long, and what blocks them."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa

from capacity.queue.reading import QueueReader
from capacity.queue.records import QueuedWorkload
from dashboards.figures.analyzer_findings import FindingRow, get_mapping, get_number, list_findings
from dashboards.figures.query import BY_HOUR, COVERED, Filters, run_query
from fallow.errors import UsageError
from fallow.money import sum_known
from fallow.protocols import Views
from fallow.resources import read_text
from fallow.rows import Row, decode_rows
from fallow.window import Window
from warehouse.ledger import align_window
from warehouse.steps import PAYING_TEAMS, POD_OWNERS

ReaderBuilder = Callable[[Views, datetime], QueueReader]
"""Returns the reader of the queue at one time."""
_builders: list[ReaderBuilder] = [QueueReader]
KEYS = ("team", "queue", "priority", "size")
MOST, MOST_STEPS = 300, 1000
LEAST_MEASURED = 0.9
"""Of the allocated hours of a step; telemetry of less does not speak for the rest."""
DEMAND_STEPS = (*(f"warehouse:{step}" for step in PAYING_TEAMS), POD_OWNERS, "queues/gpu_requests")


class DemandHour(Row, frozen=True):
    """GPUs of one step, which begins `at` (UTC): its means; None = the ledger lacks the step."""

    at: datetime
    waiting_gpus: float
    demand_gpus: float | None
    """Allocated or waited for."""
    paid_gpus: float | None
    allocated_gpus: float | None
    effective_gpus: float | None
    """GPUs' worth of effective use; None where less than `LEAST_MEASURED` of it is measured."""
    idle_gpus: float | None
    free_gpus: float | None


class WaitingTotals(Row, frozen=True):
    """What waits at the window's end; what is not known of a workload counts in no sum."""

    workloads: int
    pods: int
    gpus: float
    gpu_hours: float
    longest_hours: float
    usd: Decimal | None
    """Price of the wait, which no bill has; None = known of nobody who waits."""


class BlockedPair(msgspec.Struct, frozen=True):
    """A waiting workload and the one that blocks it; `gpu_hours` as the quota analyzer counts."""

    kind: str
    cluster: str
    waits: str
    because_of: str
    how: str
    gpu_hours: float
    usd: Decimal | None
    """Of the whole finding."""
    why: str
    found_at: datetime | None
    """None = now: no analysis is needed."""
    id: str
    """Of the finding; empty = there is none."""


def read_waiting(views: Views, window: Window, filters: Filters) -> pa.Table:
    """Return what waits at the window's end, by workload, the most waited GPU-hours first.

    Columns: cluster, team, workload, queue, priority, pods, gpus, since (UTC), hours (longest),
    gpu_hours (GPUs times hours), message (of the scheduler). Filters of model and pool do not
    apply: a waiting pod has none yet.
    """
    steps = (*DEMAND_STEPS, "queues/refused", "queues/waiting")
    return run_query(views, steps, window, filters, most=MOST)


def use_reader(builder: ReaderBuilder) -> None:
    """Let the application read the queue as `fallow queue` does: pages do not import analyzers."""
    _builders[:] = [builder]


def read_queue(views: Views, window: Window) -> dict[tuple[str, str], QueuedWorkload]:
    """Return the record of each workload that waits at the window's end, as `fallow queue` does.

    By cluster and namespace/kind/name.
    """
    records = _builders[0](views, window.end).read()
    return {(record.key[0], "/".join(record.key[1:])): record for record in records}


def read_jobs(views: Views, window: Window) -> pa.Table:
    """Return the objects by which jobs wait before they have pods: cluster, namespace, name."""
    sql = read_text("dashboards.figures", "queues/jobs.sql")
    return views.query(sql, {"until": window.end})


def list_waiting(
    rows: Iterable[Mapping[str, Any]],
    records: Mapping[tuple[str, str], QueuedWorkload],
    filters: Filters,
) -> list[dict[str, Any]]:
    """Return the rows of `read_waiting`, and one of each job that waits before it has pods.

    What is not known of such a job is None; `objects` are those by which it waits. The most
    expensive wait comes first, then the most waited GPU-hours.
    """
    listed = {(row["cluster"], row["workload"]) for row in rows}
    jobs = [
        _build_job_row(record)
        for key, record in records.items()
        if record.objects and key not in listed and _is_match(record, filters)
    ]
    costs = {key: record.waiting_cost or Decimal() for key, record in records.items()}
    return sorted(
        [*map(dict, rows), *jobs],
        key=lambda row: (
            -costs.get((row["cluster"], row["workload"]), Decimal()),
            -(row["gpu_hours"] or 0.0),
            row["workload"],
        ),
    )


def sum_waiting(
    rows: Sequence[Mapping[str, Any]], records: Mapping[tuple[str, str], QueuedWorkload]
) -> WaitingTotals:
    """Return the totals of the rows of `list_waiting`."""
    waiting = [records.get((row["cluster"], row["workload"])) for row in rows]
    cost = sum_known(record.waiting_cost for record in waiting if record)
    return WaitingTotals(
        workloads=len(rows),
        pods=sum(row["pods"] for row in rows),
        gpus=sum(row["gpus"] or 0.0 for row in rows),
        gpu_hours=sum(row["gpu_hours"] or 0.0 for row in rows),
        longest_hours=max((row["hours"] or 0.0 for row in rows), default=0.0),
        usd=cost if rows else Decimal(),
    )


def read_waiting_totals(views: Views, window: Window, filters: Filters) -> WaitingTotals:
    """Return the totals of what waits at the window's end."""
    records = read_queue(views, window)
    rows = read_waiting(views, window, filters).to_pylist()
    return sum_waiting(list_waiting(rows, records, filters), records)


def _build_job_row(record: QueuedWorkload) -> dict[str, Any]:
    return {
        "cluster": record.key[0],
        "team": record.team or record.key[1],
        "workload": "/".join(record.key[1:]),
        "queue": record.queue or "(none)",
        "priority": record.priority_class or "(none)",
        "pods": record.pods,
        "gpus": record.gpus,
        "since": record.since,
        "hours": record.hours,
        "gpu_hours": record.gpu_hours,
        "message": record.reasons[0].text,
        "objects": list(record.objects),
    }


def _is_match(record: QueuedWorkload, filters: Filters) -> bool:
    return (
        filters.cluster in {None, record.key[0]}
        and filters.namespace in {None, record.key[1]}
        and filters.team in {None, record.team or record.key[1]}
    )


def read_waits(views: Views, window: Window, filters: Filters, key: str) -> pa.Table:
    """Return how long pods waited, a row per name of `key`.

    Columns: name, placed and waiting (pods), gpu_hours (waited in the window), p50_minutes,
    p95_minutes and longest_minutes of those placed in the window.

    Raises:
        UsageError: `key` is none of `KEYS`.
    """
    if key not in KEYS:
        raise UsageError(f"cannot group waits by {key!r}", hint=f"legal: {', '.join(KEYS)}")
    return run_query(views, (*DEMAND_STEPS, "queues/waits"), window, filters, by=key, most=MOST)


def read_hours(views: Views, window: Window, filters: Filters) -> pa.Table:
    """Return the columns of `DemandHour`, on the mean of each step."""
    steps = (*BY_HOUR, *DEMAND_STEPS, "queues/job_requests", COVERED, "queues/hours")
    step_s = choose_step_s(window)
    return run_query(views, steps, window, filters, step_s=step_s, least_measured=LEAST_MEASURED)


def list_demand(views: Views, window: Window, filters: Filters) -> list[DemandHour]:
    """Return demand, allocation and effective use by hour, or by longer steps of long windows."""
    return decode_rows(read_hours(views, window, filters), DemandHour)


def read_quotas(views: Views, window: Window, filters: Filters) -> pa.Table:
    """Return each quota of GPUs in its last state.

    Columns: cluster, kind, name, parent, resource, nominal, limit, used, borrowed, pending
    (workloads), waiting (GPUs), ts (UTC).
    """
    return run_query(views, ("queues/quotas",), window, filters, most=MOST)


def read_pairs(views: Views, window: Window, filters: Filters) -> tuple[BlockedPair, ...]:
    """Return blocked workloads and what blocks them, by the last quota analysis, largest first."""
    blocked_pairs = [
        p
        for finding in list_findings(views, window, filters, "quota")
        for p in _build_pairs(finding)
    ]
    return tuple(sorted(blocked_pairs, key=lambda p: (-p.gpu_hours, p.waits, p.because_of)))


def list_holder_pairs(
    records: Iterable[QueuedWorkload], cases: Mapping[tuple[str, str], Mapping[str, Any]]
) -> tuple[BlockedPair, ...]:
    """Return waiting workloads and who holds what they could use, the most idle hours first.

    `cases`: the findings with most dollars of the holders, by cluster and workload.
    """
    pairs = [
        BlockedPair(
            kind=" and ".join(blocker.holds),
            cluster=record.key[0],
            waits="/".join(record.key[1:]),
            because_of=holder,
            how=f"holds {blocker.gpus} GPUs that it could use",
            gpu_hours=blocker.idle_gpu_hours,
            usd=case.get("usd"),
            why=blocker.why,
            found_at=None,
            id=case.get("id", ""),
        )
        for record in records
        for blocker in record.blocked_by
        for holder in ["/".join(blocker.key[1:])]
        for case in [cases.get((record.key[0], holder), {})]
    ]
    return tuple(sorted(pairs, key=lambda p: (-p.gpu_hours, p.waits, p.because_of)))


def list_blockers(
    waiting_row: Mapping[str, Any],
    blocked_pairs: Sequence[BlockedPair],
    record: QueuedWorkload | None,
) -> tuple[str, ...]:
    """Return who blocks a row of `waiting`: holders, then by its queue, team or namespace."""
    workload = str(waiting_row["workload"])
    namespace = workload.partition("/")[0]
    queue = str(waiting_row["queue"])
    names = {workload, namespace, queue, f"{namespace}/{queue}", str(waiting_row["team"])}
    cluster = waiting_row["cluster"]
    blocking = [p.because_of for p in blocked_pairs if p.cluster == cluster and p.waits in names]
    holders = ["/".join(b.key[1:]) for b in record.blocked_by] if record else []
    return tuple(dict.fromkeys([*holders, *blocking]))


def choose_step_s(window: Window) -> int:
    """Return the seconds of a step: whole hours, at most `MOST_STEPS` of them."""
    return 3600 * max(1, math.ceil(align_window(window).seconds / 3600 / MOST_STEPS))


def _build_pairs(finding: FindingRow) -> list[BlockedPair]:
    name = f"{finding.namespace}/{finding.workload}" if finding.namespace else finding.workload
    details = finding.details
    match finding.kind:
        case "starved_queue":
            starved = get_number(details.get("starved_gpu_hours"))
            rows = [
                (name, borrower, "above its guarantee meanwhile", hours)
                for borrower, hours in _list_hours(details, "above_their_guarantee_meanwhile")
            ] or [(name, "no pod of its group", "its guarantee was broken", starved)]
        case "hoarded_quota":
            rows = [
                (waiter, name, "holds GPUs idle", hours)
                for waiter, hours in _list_hours(details, "who_waited")
            ]
        case "stranded_quota":
            lenders = ", ".join(lender for lender, _ in _list_hours(details, "unused_quota_of"))
            rows = [
                (waiter, lenders, "leaves its quota unused while GPUs are free", hours)
                for waiter, hours in _list_hours(details, "would_have_served")
            ]
        case "ghost_reservation":
            reserved = get_number(details.get("reserved_gpu_hours"))
            rows = [("others of the cluster", name, "reserved, without a pod", reserved)]
        case _:
            rows = []
    return [
        BlockedPair(
            kind=finding.kind,
            cluster=finding.cluster,
            waits=waits_,
            because_of=blocker,
            how=how,
            gpu_hours=hours,
            usd=finding.usd,
            why=finding.why,
            found_at=finding.found_at,
            id=finding.id,
        )
        for waits_, blocker, how, hours in rows
    ]


def _list_hours(value: object, name: str) -> list[tuple[str, float]]:
    parts = get_mapping(get_mapping(value).get(name))
    return [(str(who), float(n)) for who, n in parts.items() if isinstance(n, int | float)]
