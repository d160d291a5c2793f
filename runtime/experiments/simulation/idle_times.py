"""Find when each workload of a world was idle and when it was wanted again, from the truth.

    world, advanced block by block ─► Observer.see ─► Observer.idle_times ─► IdleTime

A workload is idle while it holds devices and every pod of it is idle: no kernel runs, no cell, no
request; the host prepares or saves nothing; nothing starts. No analyzer reads this.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from math import inf

import msgspec
import numpy as np

from simulator.models import STATES, DeviceAllocation
from simulator.owner_behaviour import DAY_S, find_next_use
from simulator.work.behaviours import Script
from simulator.work.kinds import read_kinds
from simulator.work.plans import read_behaviours
from simulator.workload_scripts import Key, SimulatedWorkload
from simulator.world import World

Span = tuple[float, float]
SHARED = "-SHARED"
"""The end of the product label of a time-sliced GPU."""


class IdleTime(msgspec.Struct, frozen=True):
    """One stretch in which a workload was idle: [begin, end), seconds since the epoch."""

    key: Key
    category: str
    """A row of `simulator/mix.csv`."""
    family: str
    """training | night | serving | notebook"""
    gpus: float
    begin_s: float
    end_s: float
    wanted_s: float
    """When its owner or a request needs it next; infinite = not within a day after the end."""
    leaves_s: float
    """When its owner deletes it."""
    files: bool
    """Whether its owner's files are on no volume."""
    memory: bool
    """Whether a kernel holds values that no file has."""
    shared: bool = False
    """Whether its devices are time-sliced: shares are estimates, so no policy acts on them."""


class Observer:
    """Keeps the scripts of a world's pods, which the world itself does not keep."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._scripts: dict[str, Script] = {}

    def see(self) -> None:
        """Store the current scripts; called after every block."""
        self._scripts.update(self._world.cast.scripts)

    def idle_times(self) -> list[IdleTime]:
        """Return every idle time so far, workload by workload, oldest first."""
        by_key: dict[Key, list[DeviceAllocation]] = defaultdict(list)
        for allocation in self._world.cluster.allocations:
            holder = allocation.holder
            if holder.uid in self._scripts:
                by_key[holder.workload_kind, holder.namespace, holder.workload].append(allocation)
        return [
            rest
            for key, allocations in by_key.items()
            for rest in self._of(self._world.cast.roles[key], key, allocations)
        ]

    def _of(
        self, role: SimulatedWorkload, key: Key, allocations: Sequence[DeviceAllocation]
    ) -> Iterator[IdleTime]:
        now_s = self._world.now_s
        held_spans = [(t.start_s, min(t.end_s, now_s)) for t in allocations]
        idle_spans = [
            span
            for allocation, within in zip(allocations, held_spans, strict=True)
            for span in _list_idle_spans(self._scripts[allocation.holder.uid], within)
        ]
        category = role.arrival.category
        leaves = inf if role.since_s is None else role.since_s + role.arrival.life_s
        for begin, end in find_common_spans(held_spans, idle_spans):
            pods = [
                (t, self._scripts[t.holder.uid])
                for t, (start_s, end_s) in zip(allocations, held_spans, strict=True)
                if start_s <= begin < end_s
            ]
            scripts = [script for _, script in pods]
            wanted = [_find_next_use_s(script, begin, now_s + DAY_S) for script in scripts]
            yield IdleTime(
                key=key,
                category=category.category,
                family=read_behaviours()[category.behaviour].family,
                gpus=category.gpus * category.weight * len(pods),
                begin_s=begin,
                end_s=end,
                wanted_s=min(wanted, default=inf),
                leaves_s=leaves,
                files=not role.arrival.on_volume and any(s.used(begin) for s in scripts),
                memory=any(s.kernel_memory(begin) for s in scripts),
                shared=category.product.endswith(SHARED),
            )


def find_common_spans(held_spans: Sequence[Span], idle_spans: Sequence[Span]) -> list[Span]:
    """Return when devices are allocated and all of them are idle; spans that touch are joined."""
    steps: dict[float, list[int]] = defaultdict(lambda: [0, 0])
    for place, spans in enumerate((held_spans, idle_spans)):
        for begin, end in spans:
            if end > begin:
                steps[begin][place] += 1
                steps[end][place] -= 1
    spans_found: list[Span] = []
    held_count = idle_count = 0
    since: float | None = None
    for at in sorted(steps):
        held_count, idle_count = held_count + steps[at][0], idle_count + steps[at][1]
        whole = held_count > 0 and idle_count == held_count
        if whole and since is None:
            since = at
        elif not whole and since is not None:
            spans_found.append((since, at))
            since = None
    return spans_found


def _list_idle_spans(script: Script, within: Span) -> Iterator[Span]:
    """Yield the phases in which a pod is idle; before its script begins the pod starts up."""
    start_s, end_s = within
    timeline = script.timeline
    timeline.grow(end_s)
    facts = read_kinds()
    idle = (facts.state == STATES.index("idle")) & ~facts.stop_harms
    ends = np.append(timeline.begin[1:], inf)
    for place in np.flatnonzero(idle[timeline.kind]).tolist():
        begin = max(float(timeline.begin[place]), start_s)
        end = min(float(ends[place]), end_s)
        if end > begin:
            yield begin, end


def _find_next_use_s(script: Script, since_s: float, horizon_s: float) -> float:
    """Return when an idle pod is needed next; finished or hanging work is never needed."""
    if script.family == "training":
        return inf
    following = find_next_use(script, since_s, horizon_s)
    return inf if following is None else following
