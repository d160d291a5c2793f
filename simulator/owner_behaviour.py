"""Simulate what owners do with their workloads after submitting them: delete and restart them.

An owner who finds a notebook or server stopped at its next use starts it again at that time. An
owner who finds an unfinished job stopped starts it again after one hour. Abandoned, hanging and
finished work is not started again.
"""

import numpy as np

from simulator.work.behaviours import Script
from simulator.work.kinds import read_kinds
from simulator.workload_scripts import SimulatedWorkload

NOTICED_S = 3600.0
AT_ONCE_S = 60.0
"""Who is just using it."""
DAY_S = 86_400.0
USES = ("cell", "cpu cell", "terminal", "terminal cpu", "serve", "burst", "compute", "input")


def return_time(role: SimulatedWorkload, stopped_s: float, horizon_s: float) -> float | None:
    """Return when the owner of a stopped workload starts it again; None = never."""
    times = [_find_missed_time(script, stopped_s, horizon_s) for script in role.running.values()]
    if not role.running:
        # It was still starting, so its owner waits for it.
        return stopped_s + NOTICED_S
    return min((m for m in times if m is not None), default=None)


def _find_missed_time(script: Script, stopped_s: float, horizon_s: float) -> float | None:
    if script.family == "training":
        return stopped_s + NOTICED_S if _is_unfinished(script, stopped_s) else None
    following = find_next_use(script, stopped_s, horizon_s)
    return None if following is None else max(following, stopped_s + AT_ONCE_S)


def _is_unfinished(script: Script, at_s: float) -> bool:
    """Return whether a job would still have made progress after a time."""
    timeline = script.timeline
    kind = timeline.kind[timeline.at(np.array([at_s]))][0]
    return int(kind) not in {read_kinds().number(name) for name in ("idle", "spin", "done")}


def find_next_use(script: Script, since_s: float, horizon_s: float) -> float | None:
    """Return when, from `since_s` on, a pod would be used first; None = not within the horizon."""
    timeline = script.timeline
    kinds_used = [read_kinds().number(name) for name in USES]
    reached = since_s
    while True:
        timeline.grow(reached)
        place = int(timeline.at(np.array([since_s]))[0])
        used = np.flatnonzero(np.isin(timeline.kind[place:], kinds_used)) + place
        if len(used):
            return max(float(timeline.begin[used[0]]), since_s)
        if reached >= horizon_s:
            return None
        reached = min(reached + DAY_S, horizon_s)
