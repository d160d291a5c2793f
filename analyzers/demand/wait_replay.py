"""Replay a cluster's own requests over a number of GPUs: what a lower p95 of the wait costs.

The GPUs are one pool: no nodes, no quotas, no priorities; requests start in the order in which they
came, and a smaller one passes those that do not fit (the first `DEPTH` that wait are tried). So the
replay waits less than a fleet with nodes and quotas. It is compared with the waits as they were:
where its p95 at today's number of GPUs differs by more than a tenth, the answer is marked.
"""

import heapq
from bisect import bisect_left
from collections.abc import Sequence
from functools import cache

import msgspec
import numpy as np

from analyzers.demand.quarter import MONTH_H

DEPTH = 200
LEAST_WAITS = 30
MOST_REQUESTS = 20_000
TOLERANCE = 0.10
SHORT_S = 60.0
"""Below this wait replay and history agree, whatever their ratio."""
P95 = 0.95


class GangRequest(msgspec.Struct, frozen=True):
    """GPUs that one workload requests at once; times in seconds since 1970."""

    created_s: float
    gpus: float
    run_s: float
    waited_s: float | None
    """As it was; None = it waits still, or it was there before the first one."""


class WaitTarget(msgspec.Struct, frozen=True):
    """The GPUs with which the replayed p95 of the wait is at most `target_s`."""

    target_s: float
    gpus: int
    more_gpus: int
    """Than today; below 0 = fewer are enough."""
    p95_s: float
    usd_month: float | None


class WaitReplay(msgspec.Struct, frozen=True):
    """The waits as they were and as replayed, and what targets of the p95 cost."""

    refused: str | None
    requests: int
    guessed_runs: int = 0
    """Requests that have not ended: they run on for the median of those that have."""
    p95_s: float | None = None
    replayed_p95_s: float | None = None
    trusted: bool = False
    why: str = ""
    targets: tuple[WaitTarget, ...] = ()


def replay_waits(requests: Sequence[GangRequest], gpus: float) -> list[float]:
    """Return how long each request waits on one pool of GPUs, in the order of `requests`.

    A request for more GPUs than there are waits for ever: infinite.
    """
    waits = [float("inf")] * len(requests)
    free = gpus
    running: list[tuple[float, float]] = []
    queue: list[int] = []
    has_untried = False
    smallest = min((request.gpus for request in requests), default=0.0) - 1e-9

    def start(now: float, first: int = 0) -> None:
        nonlocal free, has_untried
        if free < smallest:
            return
        count = len(queue)
        for n in queue[first:DEPTH]:
            if requests[n].gpus <= free + 1e-9:
                free -= requests[n].gpus
                waits[n] = now - requests[n].created_s
                heapq.heappush(running, (now + requests[n].run_s, requests[n].gpus))
                queue.remove(n)
        has_untried = len(queue) < count > DEPTH

    for n, request in enumerate(requests):
        while running and running[0][0] <= request.created_s:
            now, gpus_freed = heapq.heappop(running)
            free += gpus_freed
            if queue:
                start(now)
        if request.gpus <= gpus + 1e-9:
            queue.append(n)
            # As many GPUs are free as when those before it did not fit.
            start(request.created_s, 0 if has_untried else len(queue) - 1)
    while queue and running:
        now, gpus_freed = heapq.heappop(running)
        free += gpus_freed
        start(now)
    return waits


def price_targets(
    requests: Sequence[GangRequest],
    gpus: float,
    usd_h: float | None,
    targets_s: Sequence[float],
    guessed_runs: int = 0,
) -> WaitReplay:
    """Return what it takes that 19 of 20 requests wait for at most each target."""
    waited = [r.waited_s for r in requests if r.waited_s is not None]
    if len(waited) < LEAST_WAITS:
        return WaitReplay(f"{len(waited)} waits: {LEAST_WAITS} are needed", len(requests))
    if len(requests) > MOST_REQUESTS:
        return WaitReplay(f"{len(requests)} requests: at most {MOST_REQUESTS}", len(requests))

    @cache
    def measure(count: float) -> float:
        waits = replay_waits(requests, count)
        measured = [w for w, r in zip(waits, requests, strict=True) if r.waited_s is not None]
        return float(np.quantile(measured, P95, method="higher"))

    def price_target(target: float) -> WaitTarget:
        low = int(np.ceil(max(r.gpus for r in requests if r.waited_s is not None)))
        high = max(low, int(np.ceil(gpus)))
        while measure(high) > target:
            high *= 2
        counts = range(low, high)
        high = low + bisect_left(counts, True, key=lambda count: measure(count) <= target)
        more = high - int(gpus)
        usd = None if usd_h is None else round(more * usd_h * MONTH_H, 2)
        return WaitTarget(target, high, more, round(measure(high), 3), usd)

    was = float(np.quantile(waited, P95, method="higher"))
    now = measure(gpus)
    agrees = abs(now - was) <= max(TOLERANCE * was, SHORT_S)
    why = (
        ""
        if agrees
        else (f"the replay waits {now:,.0f} s at p95 with today's GPUs, the past {was:,.0f} s")
    )
    return WaitReplay(
        None,
        len(requests),
        guessed_runs,
        was,
        now,
        agrees,
        why,
        tuple(price_target(target) for target in targets_s),
    )
