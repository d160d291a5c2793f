"""Simulate notebooks: runs of cells in working hours, training from a terminal, and idle time."""

import math
from collections.abc import Iterator

import numpy as np

from simulator.models import Marks
from simulator.work.chance import Array, build_generator, draw_uniform
from simulator.work.distributions import compute_value
from simulator.work.serving import MOST_LEVEL, compute_base_share, compute_off_scale, draw_runs
from simulator.work.timeline import Phases, Source, follow_until

Numbers = dict[str, float]

DAY_S = 86_400.0
WORK_DAYS = 5
SESSION_SHARE = 0.35
"""Share of a working session with cells running, if no mean is required: an estimate."""
OVERNIGHT_H = (2.0, 12.0)
JOB_H = (1.0, 10.0)
"""A training run started from a terminal."""
STEP_S = (900.0, 4500.0)
"""One epoch of it on the GPU, and below the preparation in between on the CPU."""
PREPARE_S = (120.0, 1500.0)


def run_notebook(seed: int, numbers: Numbers, start_s: float) -> Source:
    """Yield a notebook's phases; without a first cell there is no CUDA context."""
    source = _run_days(seed, numbers, start_s)
    if math.isinf(numbers["leave_after_s"]):
        return _list_contexts(source)
    begin = numbers["pull_s"] + numbers["load_s"]
    return _list_contexts(follow_until(source, begin + numbers["leave_after_s"], "idle"))


def _list_contexts(source: Source) -> Iterator[Phases]:
    """Stay idle without a context until a cell has used the GPU."""
    yield next(source)
    used = False
    for piece in source:
        if used:
            yield piece
            continue
        rest, bare = (Phases.of([name], [1]).kind[0] for name in ("idle", "bare"))
        before = np.cumsum(piece.level > 0) == 0
        kind = np.where(before & (piece.kind == rest), bare, piece.kind)
        used = not before.all()
        yield Phases(piece.length, kind, piece.level, piece.speed)


def _run_days(seed: int, numbers: Numbers, start_s: float) -> Source:
    head = [numbers["pull_s"], numbers["load_s"]]
    yield Phases.of(["pull", "load"], head)
    start = now = start_s + sum(head)
    level, share = _draw_rhythm(seed, numbers)
    leaves = math.isfinite(numbers["leave_after_s"])
    while True:
        midnight = math.floor((now / 3600 + numbers["tz_h"]) / 24) * DAY_S - numbers["tz_h"] * 3600
        day = round((midnight + numbers["tz_h"] * 3600) / DAY_S)
        rng = build_generator(seed, "day", day)
        # A notebook that was opened and then abandoned has been used, at any hour.
        begin, end = _draw_session(rng, numbers, midnight, day, forced=leaves and now == start)
        begin, end = max(begin, now), max(end, now)
        if leaves and now == start:
            begin, end = now, max(end, now + numbers["leave_after_s"])
        if begin >= end:
            names, length = ["idle"], [midnight + DAY_S - now]
        elif numbers["terminal"]:
            names, length = _draw_jobs(rng, begin - now, end - begin)
        else:
            names, length = _draw_cells(rng, numbers, share, begin - now, end - begin)
        rest = max(0.0, midnight + DAY_S - now - float(np.sum(length)))
        busy = [name in {"cell", "terminal"} for name in names]
        yield Phases.of([*names, "idle"], [*length, rest], np.where([*busy, False], level, 0))
        now = max(midnight + DAY_S, now + float(np.sum(length)))


def _draw_rhythm(seed: int, numbers: Numbers) -> tuple[float, float]:
    """Return the level while cells run and the share of a session in which they do."""
    if numbers["terminal"]:
        return min(0.97, 0.6 + 0.35 * draw_uniform(seed, "level")), 1.0
    level = compute_value("on_level", draw_uniform(seed, "level"))
    wanted = numbers["mean"]
    if math.isnan(wanted):
        return level, SESSION_SHARE
    session = (numbers["to_hour"] - numbers["from_hour"]) / 24
    present = session * numbers["attendance"] * WORK_DAYS / 7 * (1 - numbers["cpu_cells"])
    share = wanted / (present * level)
    if share > compute_base_share():
        level = min(MOST_LEVEL, wanted / (present * compute_base_share()))
        share = min(MOST_LEVEL, wanted / (present * level))
    return level, max(share, 0.005)


def _draw_session(
    rng: np.random.Generator, numbers: Numbers, midnight: float, day: int, *, forced: bool
) -> tuple[float, float]:
    shift = rng.normal(0, 0.4, 2)
    comes = rng.random() < numbers["attendance"] and (day + 3) % 7 < WORK_DAYS
    begin = midnight + (numbers["from_hour"] + float(shift[0])) * 3600
    end = midnight + (numbers["to_hour"] + float(shift[1])) * 3600
    return (begin, end) if comes or forced else (end, end)


def _draw_cells(
    rng: np.random.Generator, numbers: Numbers, share: float, before: float, seconds: float
) -> tuple[list[str], list[float]]:
    """Return alternating thinking and cells; on some days the last cell runs into the night."""
    on, off = draw_runs(rng, seconds, compute_off_scale(share))
    edges = np.cumsum(np.stack([off, on], axis=1).ravel())
    edges = edges[edges < seconds]
    length = np.diff(edges, prepend=0.0)
    on_cpu = rng.random(len(length)) < numbers["cpu_cells"]
    names = [
        "idle" if place % 2 == 0 else "cpu cell" if cpu else "cell"
        for place, cpu in enumerate(on_cpu.tolist())
    ]
    late = rng.random() < numbers["overnight"]
    hours = float(rng.uniform(*OVERNIGHT_H))
    tail = [("cell", hours * 3600)] if late else []
    return (
        ["idle", *names, *(name for name, _ in tail)],
        [before, *length.tolist(), *(s for _, s in tail)],
    )


def _draw_jobs(
    rng: np.random.Generator, before: float, seconds: float
) -> tuple[list[str], list[float]]:
    """Return one training run from a terminal that begins in the session and may outlast it."""
    wait = float(rng.uniform(0, seconds / 2))
    left = float(rng.uniform(*JOB_H)) * 3600
    names, length = ["idle"], [before + wait]
    while left > 0:
        for name, bounds in (("terminal cpu", PREPARE_S), ("terminal", STEP_S)):
            names.append(name)
            length.append(float(rng.uniform(*bounds)))
            left -= length[-1]
    return names, length


def find_edges_before(begin: Array, marks: Marks, ticks: Array, start_s: float) -> Array:
    """Return when the marked property of the phases last changed, by each tick."""
    changed = np.flatnonzero(np.diff(marks.astype(np.int8), prepend=0) != 0)
    times = np.append(start_s, begin[changed])
    return times[np.searchsorted(begin[changed], ticks, side="right")]
