"""Replay units of work on nodes through a scheduler, event by event.

Everything follows from the site: equal input gives equal output. Pods of a unit end each at its own
time; the quota of the unit is free when the last of them ends. An evicted unit waits again with its
old age and starts from its beginning, because no checkpoint is known here. A unit that a policy
stops waits again, with its old age too, from its next use on, for the rest of its run.
"""

import heapq
from collections.abc import Iterable
from math import inf
from typing import Any

from msgspec.structs import replace

from runtime.operations.what_if.records import (
    PodRun,
    ReplayResult,
    ReplaySite,
    ReplayUnit,
    UnitResult,
)
from runtime.operations.what_if.schedulers import build_scheduler
from runtime.operations.what_if.waiting_units import WaitingUnits
from simulator.cluster.quotas.claims import Preempt, Refuse
from simulator.cluster.scheduler.devices import choose_placement
from simulator.cluster.scheduler.fleet import SchedulerFleet
from simulator.cluster.scheduler.placing import place, place_gang
from simulator.cluster.scheduler.preempting import choose_victims
from simulator.cluster.scheduler.requests import Placement, PodGang, Policy

PLACEMENT: Policy = "best-fit"
_END, _PAUSE, _NODE, _LEAVE, _ARRIVE = range(5)
"""Order of what happens at one time."""


def replay(site: ReplaySite) -> ReplayResult:
    """Return what becomes of a site's units."""
    return _Replay(site).run()


class _Replay:
    """One replay; it runs once."""

    def __init__(self, site: ReplaySite) -> None:
        self._site, self._now = site, site.start_s
        self._scheduler = build_scheduler(site)
        self._fleet = SchedulerFleet([node.capacity for node in site.nodes], types=())
        self._waiting = WaitingUnits()
        self._units = {unit.name: unit for unit in site.units}
        self._unit_of = {pod.uid: unit for unit in site.units for pod in unit.members}
        self._open: dict[str, dict[str, tuple[Placement, float]]] = {}
        """By unit: its pods that run, with their placement and start."""
        self._epochs: dict[str, int] = {}
        """By unit: how often it was placed; ends of earlier placements do not count."""
        self._results: dict[str, UnitResult] = {}
        self._runs: list[PodRun] = []
        self._returns: dict[str, float] = {}
        """By unit that a policy stopped: its next use."""
        self._refused: dict[int, int] = {}
        """Forms that cannot start, with their priority, until something is freed."""
        self._events: list[tuple[float, int, int, Any]] = []
        self._count = 0

    def run(self) -> ReplayResult:
        """Return the results."""
        site = self._site
        self._plan_nodes()
        for unit in site.units:
            self._results[unit.name] = UnitResult(unit, None, None)
        self._resume(unit for unit in site.units if unit.nodes)
        for unit in site.units:
            if unit.name not in self._open:
                self._add_event(max(unit.arrival_s, site.start_s), _ARRIVE, unit)
                if unit.leave_s < inf:
                    self._add_event(unit.leave_s, _LEAVE, unit)
        while self._events and self._events[0][0] < site.end_s:
            self._take_step()
        self._now = site.end_s
        for name in list(self._open):
            self._close_runs(name)
        return ReplayResult(site, tuple(self._results.values()), tuple(self._runs))

    def _take_step(self) -> None:
        """Handle all that happens at the next time, then start what can start."""
        self._now = self._events[0][0]
        while self._events and self._events[0][0] == self._now:
            _, kind, _, subject = heapq.heappop(self._events)
            self._handle(kind, subject)
        self._start_units()

    def _plan_nodes(self) -> None:
        for node in self._site.nodes:
            name = node.capacity.name
            if node.opens_s > self._site.start_s:
                self._fleet.close(name)
                self._add_event(node.opens_s, _NODE, (name, True))
            if node.closes_s < self._site.end_s:
                self._add_event(max(node.closes_s, self._site.start_s), _NODE, (name, False))

    def _add_event(self, at_s: float, kind: int, subject: object) -> None:
        self._count += 1
        heapq.heappush(self._events, (at_s, kind, self._count, subject))

    def _handle(self, kind: int, subject: Any) -> None:
        if kind == _END:
            self._end_pod(*subject)
        elif kind == _PAUSE:
            self._pause_unit(*subject)
        elif kind == _ARRIVE:
            self._waiting.add(subject)
        elif kind == _LEAVE:
            if subject.name in self._waiting:
                self._waiting.remove(subject)
        elif subject[1]:
            self._fleet.reopen(subject[0])
            self._refused.clear()
        else:
            self._fleet.close(subject[0])

    def _resume(self, units: Iterable[ReplayUnit]) -> None:
        """Place what ran when the window began: where it ran, else where it fits."""
        for unit in units:
            placements = []
            for member, node in zip(unit.members, unit.nodes, strict=True):
                row = self._fleet.place_of.get(node)
                if row is not None and self._fleet.feasible(member)[row]:
                    placement = choose_placement(member, self._fleet, row, PLACEMENT)
                    self._fleet.take(member, placement, self._now)
                    placements.append(placement)
            for placement in placements:
                self._fleet.release(placement.uid)
            if len(placements) == len(unit.members):
                self._start(unit, placements)

    def _start_units(self) -> None:
        """Start what can start now, in the scheduler's order."""
        evicted: set[str] = set()
        while True:
            heads = [
                (self._scheduler.rank(unit), form, unit)
                for form, unit in self._waiting.list_heads()
                if form not in self._refused and unit.name not in evicted
            ]
            if not heads:
                return
            for _, form, unit in sorted(heads, key=lambda head: head[0]):
                if self._try(unit, evicted):
                    break  # the order may have changed
                self._refused[form] = unit.priority
            else:
                return

    def _try(self, unit: ReplayUnit, evicted: set[str]) -> bool:
        """Start a unit if quota and nodes allow it, and evict for it if they must."""
        verdict = self._scheduler.judge(unit)
        if isinstance(verdict, Refuse):
            return False
        if isinstance(verdict, Preempt):
            if not self._has_room_without(unit, verdict.victims):
                return False
            for victim in verdict.victims:
                self._evict(victim, evicted)
        placements = self._place(unit, self._fleet)
        if placements is None:
            victims = self._choose_victims(unit)
            if not victims:
                return False
            for victim in victims:
                self._evict(victim, evicted)
            placements = self._place(unit, self._fleet)
            if placements is None:
                return False
        self._waiting.remove(unit)
        self._start(unit, placements)
        # A lower unit that runs now may yield to what could not start before.
        self._refused = {f: p for f, p in self._refused.items() if p <= unit.priority}
        return True

    def _place(self, unit: ReplayUnit, fleet: SchedulerFleet) -> list[Placement] | None:
        if len(unit.members) == 1:
            placement = place(unit.members[0], fleet, PLACEMENT)
            return None if placement is None else [placement]
        gang = place_gang(PodGang(unit.name, unit.members), fleet, PLACEMENT)
        return None if gang is None else list(gang)

    def _has_room_without(self, unit: ReplayUnit, victims: Iterable[str]) -> bool:
        trial = self._fleet.copy()
        for victim in victims:
            for uid in self._open[victim]:
                trial.release(uid)
        return self._place(unit, trial) is not None

    def _choose_victims(self, unit: ReplayUnit) -> list[str]:
        yields = self._scheduler.choose_yielding(unit)
        if yields is None:
            return []
        gang = PodGang(unit.name, unit.members)
        victims = choose_victims(
            gang, self._fleet, PLACEMENT, lambda pod: yields(self._unit_of[pod.request.uid])
        )
        return sorted({self._unit_of[pod.request.uid].name for pod in victims or ()})

    def _start(self, unit: ReplayUnit, placements: Iterable[Placement]) -> None:
        epoch = self._epochs[unit.name] = self._epochs.get(unit.name, 0) + 1
        runs = {pod.uid: (pod, run_s) for pod, run_s in zip(unit.members, unit.run_s, strict=True)}
        pods = self._open[unit.name] = {}
        for placement in placements:
            pod, run_s = runs[placement.uid]
            self._fleet.take(pod, placement, self._now)
            pods[placement.uid] = placement, self._now
            if run_s < inf:
                self._add_event(self._now + run_s, _END, (unit, placement.uid, epoch))
        self._scheduler.hold(unit, self._now)
        if unit.pause is not None:
            self._add_event(self._now + unit.pause.after_s, _PAUSE, (unit, epoch))
        result = self._results[unit.name]
        if result.start_s is None:
            start_s = min(unit.arrival_s, self._now) if unit.nodes else self._now
            self._results[unit.name] = UnitResult(unit, start_s, None)
        elif (return_s := self._returns.pop(unit.name, None)) is not None:
            self._results[unit.name] = replace(result, return_wait_s=self._now - return_s)

    def _pause_unit(self, unit: ReplayUnit, epoch: int) -> None:
        """Stop a unit that still runs as a policy does; its next use makes it wait again."""
        if epoch != self._epochs[unit.name] or unit.name not in self._open or unit.pause is None:
            return
        self._close_runs(unit.name)
        self._scheduler.release(unit)
        self._refused.clear()
        if unit.pause.pause_s == inf:
            self._results[unit.name] = replace(self._results[unit.name], end_s=self._now)
            return
        past_s = unit.pause.after_s + unit.pause.pause_s
        rest = tuple(max(0.0, run_s - past_s) for run_s in unit.run_s)
        remaining = replace(unit, run_s=rest, pause=None, nodes=())
        self._units[unit.name] = remaining
        self._returns[unit.name] = self._now + unit.pause.pause_s
        self._add_event(self._returns[unit.name], _ARRIVE, remaining)

    def _end_pod(self, unit: ReplayUnit, uid: str, epoch: int) -> None:
        if epoch != self._epochs[unit.name] or uid not in self._open.get(unit.name, ()):
            return
        self._record_run(unit.name, uid)
        self._refused.clear()
        if not self._open[unit.name]:
            del self._open[unit.name]
            self._scheduler.release(unit)
            result = self._results[unit.name]
            self._results[unit.name] = replace(result, end_s=self._now)

    def _evict(self, name: str, evicted: set[str]) -> None:
        unit, result = self._units[name], self._results[name]
        lost = sum(run.gpu_seconds for run in self._close_runs(name))
        self._scheduler.release(unit)
        self._results[name] = replace(
            result,
            preemptions=result.preemptions + 1,
            lost_gpu_seconds=result.lost_gpu_seconds + lost,
        )
        self._refused.clear()
        self._waiting.add(unit)
        evicted.add(name)

    def _close_runs(self, name: str) -> list[PodRun]:
        runs = [self._record_run(name, uid) for uid in list(self._open[name])]
        del self._open[name]
        return runs

    def _record_run(self, name: str, uid: str) -> PodRun:
        placement, start_s = self._open[name].pop(uid)
        self._fleet.release(uid)
        run = PodRun(
            name,
            uid,
            placement.node,
            placement.devices,
            placement.gpu_milli,
            start_s,
            self._now,
        )
        self._runs.append(run)
        return run
