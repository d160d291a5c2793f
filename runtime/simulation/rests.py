"""When each workload of a world rested, and when it was wanted again: from truth alone.

    world, moved block by block ─► Observer.see ─► Observer.rests ─► Rest of every workload

A workload rests while it holds devices and every pod of it rests: no kernel runs, no cell, no
request, nothing is prepared or saved on the host, nothing starts. No analyzer reads this.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from math import inf

import msgspec
import numpy as np

from simulator.cast import Key, Role
from simulator.nouns import STATES, Tenure
from simulator.owners import DAY_S, next_use
from simulator.work.behaviours import Script
from simulator.work.kinds import kinds
from simulator.work.plans import behaviours
from simulator.world import World

Span = tuple[float, float]
SHARED = "-SHARED"
"""How the label of the product of a time-sliced GPU ends."""


class Rest(msgspec.Struct, frozen=True):
    """One stretch in which a workload rested: [begin, end), seconds since the epoch."""

    key: Key
    category: str
    """A row of `simulator/mix.csv`."""
    family: str
    """training | night | serving | notebook"""
    gpus: float
    begin_s: float
    end_s: float
    wanted_s: float
    """When its owner or a request wants it next; infinite = not within a day of the end."""
    leaves_s: float
    """When its owner takes it away for good."""
    files: bool
    """Its owner's files lie on no volume."""
    memory: bool
    """A kernel holds values that no file has."""
    shared: bool = False
    """Its devices are time-sliced: whose share is whose is an estimate, and nothing acts on one."""


class Observer:
    """Keeps the scripts of a world's pods, which the world itself forgets."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._scripts: dict[str, Script] = {}

    def see(self) -> None:
        """Remember the scripts of now; called after every block."""
        self._scripts.update(self._world.cast.scripts)

    def rests(self) -> list[Rest]:
        """Return every rest so far, workload by workload, oldest first."""
        by_key: dict[Key, list[Tenure]] = defaultdict(list)
        for tenure in self._world.cluster.tenures:
            holder = tenure.holder
            if holder.uid in self._scripts:
                by_key[holder.workload_kind, holder.namespace, holder.workload].append(tenure)
        return [
            rest
            for key, tenures in by_key.items()
            for rest in self._of(self._world.cast.roles[key], key, tenures)
        ]

    def _of(self, role: Role, key: Key, tenures: Sequence[Tenure]) -> Iterator[Rest]:
        now_s = self._world.now_s
        held = [(t.start_s, min(t.end_s, now_s)) for t in tenures]
        resting = [
            span
            for tenure, within in zip(tenures, held, strict=True)
            for span in _resting(self._scripts[tenure.holder.uid], within)
        ]
        category = role.arrival.category
        leaves = inf if role.since_s is None else role.since_s + role.arrival.life_s
        for begin, end in common(held, resting):
            there = [
                (t, self._scripts[t.holder.uid])
                for t, (start_s, end_s) in zip(tenures, held, strict=True)
                if start_s <= begin < end_s
            ]
            scripts = [script for _, script in there]
            wanted = [_wanted(script, begin, now_s + DAY_S) for script in scripts]
            yield Rest(
                key=key,
                category=category.category,
                family=behaviours()[category.behaviour].family,
                gpus=category.gpus * category.weight * len(there),
                begin_s=begin,
                end_s=end,
                wanted_s=min(wanted, default=inf),
                leaves_s=leaves,
                files=not role.arrival.on_volume and any(s.used(begin) for s in scripts),
                memory=any(s.kernel_memory(begin) for s in scripts),
                shared=category.product.endswith(SHARED),
            )


def common(held: Sequence[Span], resting: Sequence[Span]) -> list[Span]:
    """Return when something is held and all that is held rests; spans that touch are one."""
    steps: dict[float, list[int]] = defaultdict(lambda: [0, 0])
    for place, spans in enumerate((held, resting)):
        for begin, end in spans:
            if end > begin:
                steps[begin][place] += 1
                steps[end][place] -= 1
    found: list[Span] = []
    holds = rests = 0
    since: float | None = None
    for at in sorted(steps):
        holds, rests = holds + steps[at][0], rests + steps[at][1]
        whole = holds > 0 and rests == holds
        if whole and since is None:
            since = at
        elif not whole and since is not None:
            found.append((since, at))
            since = None
    return found


def _resting(script: Script, within: Span) -> Iterator[Span]:
    """Yield the phases in which a pod rests; before its script begins it starts."""
    start_s, end_s = within
    timeline = script.timeline
    timeline.grow(end_s)
    facts = kinds()
    idle = (facts.state == STATES.index("idle")) & ~facts.hurts
    ends = np.append(timeline.begin[1:], inf)
    for place in np.flatnonzero(idle[timeline.kind]).tolist():
        begin = max(float(timeline.begin[place]), start_s)
        end = min(float(ends[place]), end_s)
        if end > begin:
            yield begin, end


def _wanted(script: Script, since_s: float, horizon_s: float) -> float:
    """Return when a pod that rests is used next: work that is done or hangs is not missed."""
    if script.family == "training":
        return inf
    following = next_use(script, since_s, horizon_s)
    return inf if following is None else following
