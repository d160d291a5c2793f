"""Compare the replay of the past as it was with the record, before any other setting is tried."""

from collections import defaultdict
from typing import Literal

import msgspec
import numpy as np

from capacity.replay.measures import HOUR_S, sum_capacity, sum_hours
from capacity.replay.past import PastSite
from capacity.replay.records import ReplayResult

TOLERANCE = 0.1
"""Part of the recorded figure by which the replay may differ."""
RESOLUTION_S = 2.0
"""Kubernetes' times are whole seconds: a difference of two of them is right within 2 s."""
LEAST_WAITS = 30
LEAST_HOURS = 24
QUANTILES = (("wait p50", 0.5), ("wait p95", 0.95))
UTILISATION = "utilisation by hour"

Trust = Literal["trusted", "not to be trusted", "unknown"]


class CalibratedFigure(msgspec.Struct, frozen=True):
    """A figure of the record and of its replay."""

    figure: str
    queue: str
    """Queue, or `team NAME` where there is no queue; empty = the whole site."""
    recorded: float
    replayed: float
    difference: float | None
    """Part of the recorded figure; None = that is 0. Of the utilisation: the mean of the hours'
    differences."""
    within: bool


class Calibration(msgspec.Struct, frozen=True):
    """Whether the replay reproduces the past."""

    trust: Trust
    why: str
    figures: tuple[CalibratedFigure, ...]


def judge_replay(past: PastSite, result: ReplayResult) -> Calibration:
    """Return how well a replay of the past as it was reproduces it."""
    figures = [*_compare_waits(past, result), *_compare_hours(past, result)]
    missed = [f for f in figures if not f.within]
    hours = (past.site.end_s - past.site.start_s) / HOUR_S
    if missed:
        names = ", ".join(f"{f.figure}{f' of {f.queue}' if f.queue else ''}" for f in missed)
        why = f"the replay of the past misses by more than {TOLERANCE:.0%}: {names}"
        return Calibration("not to be trusted", why, tuple(figures))
    if past.unknown_arrivals:
        why = f"{past.unknown_arrivals} units of Kueue came at a time that was not recorded"
        return Calibration("unknown", why, tuple(figures))
    if hours < LEAST_HOURS:
        return Calibration("unknown", f"the history has {hours:.0f} h of 24", tuple(figures))
    if not any(figure.queue for figure in figures):
        return Calibration("unknown", f"no queue has {LEAST_WAITS} waits", tuple(figures))
    return Calibration("trusted", f"every figure is within {TOLERANCE:.0%}", tuple(figures))


def _compare_waits(past: PastSite, result: ReplayResult) -> list[CalibratedFigure]:
    recorded: dict[str, list[float]] = defaultdict(list)
    replayed: dict[str, list[float]] = defaultdict(list)
    for unit in result.units:
        start_s = past.starts.get(unit.unit.name)
        if unit.unit.arrival_s < past.site.start_s or start_s is None:
            continue
        if start_s >= past.site.end_s:
            continue
        queue = unit.unit.queue or f"team {unit.unit.team}"
        recorded[queue].append(start_s - unit.unit.arrival_s)
        end_s = past.site.end_s if unit.start_s is None else unit.start_s
        replayed[queue].append(end_s - unit.unit.arrival_s)
    return [
        _compare(name, queue, np.quantile(waits, q), np.quantile(replayed[queue], q))
        for queue, waits in sorted(recorded.items())
        if len(waits) >= LEAST_WAITS
        for name, q in QUANTILES
    ]


def _compare(name: str, queue: str, recorded: float, replayed: float) -> CalibratedFigure:
    gap = abs(float(replayed) - float(recorded))
    return CalibratedFigure(
        name,
        queue,
        float(recorded),
        float(replayed),
        gap / float(recorded) if recorded else None,
        within=gap <= max(RESOLUTION_S, TOLERANCE * float(recorded)),
    )


def _compare_hours(past: PastSite, result: ReplayResult) -> list[CalibratedFigure]:
    recorded = sum_hours(past.runs, past.site)
    replayed = sum_hours(result.runs, past.site)
    capacity = sum_capacity(past.site)
    if not capacity.sum() or not recorded.sum():
        return []
    difference = float(np.abs(replayed - recorded).sum() / recorded.sum())
    return [
        CalibratedFigure(
            UTILISATION,
            "",
            float(recorded.sum() / capacity.sum()),
            float(replayed.sum() / capacity.sum()),
            difference,
            within=difference <= TOLERANCE,
        )
    ]
