"""Queues: who waits for GPUs, how long, and because of whom."""

import math
from datetime import datetime
from decimal import Decimal

import msgspec
import pyarrow as pa

from dashboards.figures.asking import Filters, ask
from dashboards.figures.found import Found, found, mapping, number
from fallow.errors import UsageError
from fallow.seams import Views
from fallow.window import Window
from warehouse.ledger import aligned

KEYS = ("team", "queue", "priority", "size")
MOST, MOST_STEPS = 300, 1000
ASKING = ("queues/asking",)


class Pair(msgspec.Struct, frozen=True):
    """One who waits and one because of whom; `gpu_hours` as the analyzer of quotas counts them."""

    kind: str
    cluster: str
    waits: str
    because_of: str
    how: str
    gpu_hours: float
    usd: Decimal | None
    """Of the whole finding."""
    why: str
    found_at: datetime
    id: str


def waiting(views: Views, window: Window, filters: Filters) -> pa.Table:
    """Return who waits at the window's end, by workload, the most GPU-hours waited first.

    Columns: cluster, team, workload, queue, priority, pods, gpus, since (UTC), hours (longest),
    gpu_hours (GPUs times hours), message (of the scheduler). Filters of model and pool do not
    apply: who waits has none yet.
    """
    steps = (*ASKING, "queues/refused", "queues/waiting")
    return ask(views, steps, window, filters, most=MOST)


def waits(views: Views, window: Window, filters: Filters, key: str) -> pa.Table:
    """Return how long pods waited, a row per name of `key`.

    Columns: name, placed and waiting (pods), gpu_hours (waited in the window), p50_minutes,
    p95_minutes and longest_minutes of those placed in the window.

    Raises:
        UsageError: `key` is none of `KEYS`.
    """
    if key not in KEYS:
        raise UsageError(f"cannot group waits by {key!r}", hint=f"legal: {', '.join(KEYS)}")
    return ask(views, (*ASKING, "queues/waits"), window, filters, by=key, most=MOST)


def hours(views: Views, window: Window, filters: Filters) -> pa.Table:
    """Return moment (UTC), waiting_gpus, free_gpus and idle_gpus, on the mean of each step."""
    steps = ("paid", *ASKING, "queues/hours")
    return ask(views, steps, window, filters, step_s=step_s(window))


def quotas(views: Views, window: Window, filters: Filters) -> pa.Table:
    """Return each quota of GPUs as it was last seen.

    Columns: cluster, kind, name, parent, resource, nominal, limit, used, borrowed, pending
    (workloads), waiting (GPUs), ts (UTC).
    """
    return ask(views, ("queues/quotas",), window, filters, most=MOST)


def pairs(views: Views, window: Window, filters: Filters) -> tuple[Pair, ...]:
    """Return who waits because of whom, as the last analysis of quotas found it, the most first."""
    made = [p for one in found(views, window, filters, "quota") for p in _pairs(one)]
    return tuple(sorted(made, key=lambda p: (-p.gpu_hours, p.waits, p.because_of)))


def step_s(window: Window) -> int:
    """Return the seconds of a step: whole hours, at most `MOST_STEPS` of them."""
    return 3600 * max(1, math.ceil(aligned(window).seconds / 3600 / MOST_STEPS))


def _pairs(one: Found) -> list[Pair]:
    name = f"{one.namespace}/{one.workload}" if one.namespace else one.workload
    said = one.details
    match one.kind:
        case "starved_queue":
            starved = number(said.get("starved_gpu_hours"))
            rows = [
                (name, borrower, "above its guarantee meanwhile", hours)
                for borrower, hours in _hours(said, "above_their_guarantee_meanwhile")
            ] or [(name, "nobody of its group", "its guarantee was broken", starved)]
        case "hoarded_quota":
            rows = [
                (waiter, name, "holds GPUs idle", hours)
                for waiter, hours in _hours(said, "who_waited")
            ]
        case "stranded_quota":
            lenders = ", ".join(lender for lender, _ in _hours(said, "unused_quota_of"))
            rows = [
                (waiter, lenders, "leaves its quota unused while GPUs are free", hours)
                for waiter, hours in _hours(said, "would_have_served")
            ]
        case "ghost_reservation":
            reserved = number(said.get("reserved_gpu_hours"))
            rows = [("others of the cluster", name, "reserved, and nobody is there", reserved)]
        case _:
            rows = []
    return [
        Pair(
            kind=one.kind,
            cluster=one.cluster,
            waits=waits_,
            because_of=because,
            how=how,
            gpu_hours=hours,
            usd=one.usd,
            why=one.why,
            found_at=one.found_at,
            id=one.id,
        )
        for waits_, because, how, hours in rows
    ]


def _hours(said: object, name: str) -> list[tuple[str, float]]:
    parts = mapping(mapping(said).get(name))
    return [(str(who), float(n)) for who, n in parts.items() if isinstance(n, int | float)]
