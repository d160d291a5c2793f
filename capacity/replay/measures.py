"""Measure a replay: waits, completion times, use by the hour, fairness, preemptions, lost work.

A unit that still waits at the end has waited at least so long: its wait counts with that length,
and a percentile that reaches such a wait is a lower bound.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from capacity.replay.records import PodRun, ReplayResult, ReplaySite, UnitResult

HOUR_S = 3600.0
Reals = npt.NDArray[np.float64]


class Waits(msgspec.Struct, frozen=True):
    """The waits of units that arrived in the window; seconds, None = there is none."""

    count: int
    p50_s: float | None
    p95_s: float | None
    mean_s: float | None
    still_waiting: int
    p95_is_bound: bool
    """Whether the 95th percentile lies among units that still waited: it is at least so long."""


class TeamMeasures(msgspec.Struct, frozen=True):
    """What one team got."""

    team: str
    units: int
    """Units that arrived in the window."""
    finished: int
    waits: Waits
    completion_mean_s: float | None
    """Mean time from arrival to end of those that arrived and ended in the window."""
    completion_p50_s: float | None
    gpu_hours: float
    """GPU-hours of placed pods in the window."""
    share: float | None
    """Part of all GPU-hours."""
    entitlement: float | None
    """Part of all quotas; None = it has no quota."""
    preemptions: int
    lost_gpu_hours: float


class ReplayMeasures(msgspec.Struct, frozen=True):
    """The measures of a replay."""

    teams: tuple[TeamMeasures, ...]
    waits: Waits
    completion_mean_s: float | None
    utilisation: float | None
    """GPU-hours of placed pods, of those of the nodes."""
    by_hour: tuple[float | None, ...]
    """The same by the hour of the window; None = no node."""
    gpu_hours: float
    capacity_gpu_hours: float
    jain: float | None
    """Jain's index over what teams got of what they are entitled to; without quotas, of what they
    requested. 1 = all the same."""
    preemptions: int
    lost_gpu_hours: float
    stops: int = 0
    """How often a policy stopped a unit."""
    released_gpu_hours: float = 0.0
    """GPU-hours that the stopped units would have held until their next use or end."""
    stopped: int = 0
    """How often a stopped unit was needed again and ran again."""
    return_wait_p95_s: float | None = None
    """How long these waited for GPUs when they were needed again."""


def measure_replay(
    result: ReplayResult, entitlements: Mapping[str, float] | None = None
) -> ReplayMeasures:
    """Return the measures; `entitlements` are each team's part of all quotas."""
    site, entitled = result.site, entitlements or {}
    served = _sum_served(result)
    total = sum(served.values())
    by_team: dict[str, list[UnitResult]] = defaultdict(list)
    for unit in result.units:
        by_team[unit.unit.team].append(unit)
    teams = tuple(
        _measure_team(
            team,
            units,
            site,
            gpu_hours=served.get(team, 0.0),
            total=total,
            entitlement=entitled.get(team),
        )
        for team, units in sorted(by_team.items())
    )
    used, capacity = sum_hours(result.runs, site), sum_capacity(site)
    whole = float(capacity.sum())
    return ReplayMeasures(
        teams,
        measure_waits(result.units, site),
        _compute_mean(_list_completions(result.units, site)),
        float(used.sum()) / whole if whole else None,
        tuple(float(u) / float(c) if c else None for u, c in zip(used, capacity, strict=True)),
        float(used.sum()),
        whole,
        compute_jain(_list_attained(served, entitled, by_team, site)),
        sum(unit.preemptions for unit in result.units),
        sum(unit.lost_gpu_seconds for unit in result.units) / HOUR_S,
        len(result.stops),
        sum(stop.gpu_seconds for stop in result.stops) / HOUR_S,
        *_measure_returns(result.units),
    )


def _measure_returns(units: Iterable[UnitResult]) -> tuple[int, float | None]:
    waits = [wait_s for unit in units for wait_s in unit.return_waits_s]
    return len(waits), float(np.quantile(waits, 0.95)) if waits else None


def measure_waits(units: Iterable[UnitResult], site: ReplaySite) -> Waits:
    """Return the waits of the units that arrived in the window."""
    waits: list[float] = []
    open_waits: list[float] = []
    for unit in units:
        arrival_s = unit.unit.arrival_s
        if not site.start_s <= arrival_s < site.end_s:
            continue
        if unit.start_s is not None:
            waits.append(unit.start_s - arrival_s)
        elif unit.unit.leave_s >= site.end_s:
            open_waits.append(site.end_s - arrival_s)
    both = [*waits, *open_waits]
    if not both:
        return Waits(0, None, None, None, 0, p95_is_bound=False)
    p50, p95 = (float(value) for value in np.quantile(both, (0.5, 0.95)))
    upper = float(np.quantile(both, 0.95, method="higher"))
    return Waits(
        len(both),
        p50,
        p95,
        _compute_mean(both),
        len(open_waits),
        p95_is_bound=bool(open_waits) and upper >= min(open_waits),
    )


def sum_hours(runs: Iterable[PodRun], site: ReplaySite) -> Reals:
    """Return the GPU-hours of placed pods in each hour of the window."""
    return _sum_spans(
        [(run.start_s, run.end_s, len(run.devices) * run.device_milli / 1000) for run in runs], site
    )


def sum_capacity(site: ReplaySite) -> Reals:
    """Return the GPU-hours of the nodes in each hour of the window."""
    return _sum_spans(
        [(node.opens_s, node.closes_s, node.gpu_milli / 1000) for node in site.nodes], site
    )


def compute_jain(attained: Sequence[float]) -> float | None:
    """Return Jain's index, (sum x)^2 / (n sum x^2); None = nobody got anything."""
    squares = sum(x * x for x in attained)
    return sum(attained) ** 2 / (len(attained) * squares) if squares else None


def _sum_spans(spans: Sequence[tuple[float, float, float]], site: ReplaySite) -> Reals:
    """Return amount x hours by hour of the window."""
    hours = int(-(-(site.end_s - site.start_s) // HOUR_S))
    if not spans:
        return np.zeros(hours)
    start, end, amount = np.array(spans, np.float64).T
    # The integral from the window's start to the edge of each hour; its differences are the hours.
    edges = np.minimum(site.start_s + HOUR_S * np.arange(hours + 1), site.end_s)
    start, end = (np.clip(at, site.start_s, site.end_s) for at in (start, end))
    return np.diff(_sum_area(start, amount, edges) - _sum_area(end, amount, edges)) / HOUR_S


def _sum_area(times: Reals, amounts: Reals, edges: Reals) -> Reals:
    """Return the integral to each edge of a step function that rises by `amounts` at `times`."""
    order = np.argsort(times, kind="stable")
    times, amounts = times[order], amounts[order]
    level = np.concatenate([[0.0], np.cumsum(amounts)])
    area = np.concatenate([[0.0], np.cumsum(amounts * (times - edges[0]))])
    at = np.searchsorted(times, edges, side="right")
    return np.asarray(level[at] * (edges - edges[0]) - area[at])


def _sum_served(result: ReplayResult) -> dict[str, float]:
    team_of = {unit.unit.name: unit.unit.team for unit in result.units}
    served: dict[str, float] = defaultdict(float)
    for run in result.runs:
        served[team_of[run.unit]] += run.gpu_seconds / HOUR_S
    return served


def _list_attained(
    served: Mapping[str, float],
    entitled: Mapping[str, float],
    by_team: Mapping[str, Sequence[UnitResult]],
    site: ReplaySite,
) -> list[float]:
    """Return what each team got of its entitlement, else of its request."""
    if entitled:
        return [served.get(team, 0.0) / part for team, part in sorted(entitled.items()) if part]
    attained = []
    for team, units in sorted(by_team.items()):
        requested = sum(_sum_requested(unit, site) for unit in units)
        if requested:
            attained.append(served.get(team, 0.0) / requested)
    return attained


def _sum_requested(unit: UnitResult, site: ReplaySite) -> float:
    """Return the GPU-hours that a unit would have had without a wait."""
    start_s = max(unit.unit.arrival_s, site.start_s)
    return (
        sum(
            max(0.0, min(run_s, site.end_s - start_s)) * pod.gpus * pod.gpu_milli / 1000
            for pod, run_s in zip(unit.unit.members, unit.unit.run_s, strict=True)
        )
        / HOUR_S
    )


def _measure_team(
    team: str,
    units: Sequence[UnitResult],
    site: ReplaySite,
    *,
    gpu_hours: float,
    total: float,
    entitlement: float | None,
) -> TeamMeasures:
    completions = _list_completions(units, site)
    return TeamMeasures(
        team,
        sum(site.start_s <= unit.unit.arrival_s < site.end_s for unit in units),
        sum(unit.end_s is not None for unit in units),
        measure_waits(units, site),
        _compute_mean(completions),
        float(np.median(completions)) if completions else None,
        gpu_hours,
        gpu_hours / total if total else None,
        entitlement,
        sum(unit.preemptions for unit in units),
        sum(unit.lost_gpu_seconds for unit in units) / HOUR_S,
    )


def _list_completions(units: Iterable[UnitResult], site: ReplaySite) -> list[float]:
    return [
        unit.end_s - unit.unit.arrival_s
        for unit in units
        if unit.end_s is not None and unit.unit.arrival_s >= site.start_s
    ]


def _compute_mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
