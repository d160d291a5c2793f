"""Uniform Progress: a policy for work with a deadline that uses spot and, in time, on demand.

The policy of "Can't Be Late" (Wu et al., NSDI 2024): keep up with a steady rate from start to
deadline, use spot whenever it is available, and change to on demand for good when nothing else can
meet the deadline. It has no parameters and needs no forecast.
"""

import math

import msgspec
import numpy as np
import numpy.typing as npt

from analyzers.arrays import Doubles, Ints

IDLE, SPOT, DEMAND = 0, 1, 2
DONE_H = 1e-9
"""A smaller amount of work is a rounding error."""


class SpotRun(msgspec.Struct, frozen=True):
    """The result of the policy on each trace, in hours."""

    spot: Doubles
    demand: Doubles
    idle: Doubles
    finished: npt.NDArray[np.bool_]
    switches: Ints

    def usd(self, spot_usd_h: float, demand_usd_h: float) -> Doubles:
        """Return the price of each trace."""
        return self.spot * spot_usd_h + self.demand * demand_usd_h


def run_uniform_progress(
    there: npt.NDArray[np.bool_],
    *,
    work_h: float,
    deadline_h: float,
    switch_h: float,
    step_h: float,
) -> SpotRun:
    """Run the policy on traces of spot capacity (rows) in steps (columns).

    `switch_h` of work is lost at each change of capacity and at each loss of it. A deadline that on
    demand alone can meet (work + 2 switches + 2 steps) is met on every trace.
    """
    traces, steps = there.shape
    left = np.full(traces, work_h)
    owed = np.zeros(traces)
    """Remaining hours of switching."""
    mode = np.full(traces, IDLE)
    last = np.zeros(traces, dtype=bool)
    mode_hours = np.zeros((3, traces))
    switches = np.zeros(traces, dtype=np.int64)
    for n in range(min(steps, math.ceil(deadline_h / step_h))):
        now_h = n * step_h
        busy = left > DONE_H
        up = there[:, n]
        remaining = left + owed
        slack = deadline_h - now_h - remaining
        target, done_h = now_h * work_h / deadline_h, work_h - left
        # The step is the resolution of time: a decision holds for one step.
        last |= slack <= 2 * switch_h + step_h
        ahead = done_h >= (now_h + 2 * switch_h) * work_h / deadline_h
        behind = done_h < target
        riding = (mode == SPOT) & up
        wanted = np.where(
            riding & (slack > switch_h + step_h), SPOT,
            np.where(
                last, DEMAND,
                np.where(
                    mode == DEMAND, np.where(ahead & up, SPOT, DEMAND),
                    np.where(up, SPOT, np.where(behind, DEMAND, IDLE)),
                ),
            ),
        )  # fmt: skip
        changed = busy & (wanted != mode)
        begun = changed & (wanted != IDLE)
        owed[begun] = switch_h
        switches += begun
        mode = np.where(busy, wanted, IDLE)
        used = np.minimum(step_h, np.where(mode == IDLE, step_h, left + owed))
        for kind in (IDLE, SPOT, DEMAND):
            mode_hours[kind] += np.where(busy & (mode == kind), used, 0.0)
        room = np.where(busy & (mode != IDLE), step_h, 0.0)
        paid = np.minimum(owed, room)
        owed -= paid
        left = np.maximum(left - (room - paid), 0.0)
    return SpotRun(mode_hours[SPOT], mode_hours[DEMAND], mode_hours[IDLE], left <= DONE_H, switches)


def draw_capacity(
    *, traces: int, hours: float, step_h: float, up_h: float, down_h: float, seed: int
) -> npt.NDArray[np.bool_]:
    """Draw when spot is available: up and down for exponential times with these means."""
    rng = np.random.default_rng(seed)
    steps = math.ceil(hours / step_h)
    turns = max(8, math.ceil(4 * hours / (up_h + down_h)) + 8)
    lengths = rng.exponential(1.0, (traces, turns)) * np.where(
        np.arange(turns) % 2 == 0, up_h, down_h
    )
    edges = np.cumsum(lengths, axis=1)
    middles = (np.arange(steps) + 0.5) * step_h
    edge_counts = np.stack([np.searchsorted(row, middles, side="right") for row in edges])
    return np.asarray(edge_counts % 2 == 0)
