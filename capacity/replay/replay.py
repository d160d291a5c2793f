"""Replay units of work on nodes through a scheduler, event by event.

Everything follows from the site: equal input gives equal output. Pods of a unit end each at its own
time; the quota of the unit is free when the last of them ends. An evicted unit waits again with its
old age and continues from its last checkpoint, where its owner declared how often it writes one,
else from its beginning. A unit that a policy stops waits again, with its old age too, from its next
use on, for the rest of its run.
"""

import heapq
from collections.abc import Iterable, Sequence
from math import inf
from typing import Any

from msgspec.structs import replace

from capacity.history.queue_history import NodeOutage
from capacity.placement.node_fleet import WHOLE, FleetPlace, FleetPod, NodeFleet
from capacity.quota.admission import AdmissionVerdict
from capacity.replay.claiming_units import ClaimingUnits
from capacity.replay.preemption import YieldingUnit, choose_victims
from capacity.replay.records import (
    PodRun,
    ReplayResult,
    ReplaySite,
    ReplayStop,
    ReplayUnit,
    UnitResult,
)
from capacity.replay.schedulers import Rank, build_scheduler
from capacity.replay.waiting_units import WaitingUnits, build_key

HOUR_S = 3600.0
_END, _PAUSE, _NODE, _OUTAGE, _LEAVE, _ARRIVE = range(6)
"""Order of what happens at one time."""


def replay(site: ReplaySite) -> ReplayResult:
    """Return what becomes of a site's units."""
    return _Replay(site).run()


class _Replay:
    """One replay; it runs once."""

    def __init__(self, site: ReplaySite) -> None:
        self._site, self._now = site, site.start_s
        self._scheduler = build_scheduler(site)
        self._fleet = NodeFleet(node.capacity for node in site.nodes)
        self._claiming, self._waiting = ClaimingUnits(), WaitingUnits()
        """Those that need quota, and those that need nodes."""
        self._verdicts: dict[tuple[str, int, int], AdmissionVerdict] = {}
        """By form: the verdicts that apply until quota is taken or given back."""
        self._units = {unit.name: unit for unit in site.units}
        self._open: dict[str, dict[str, tuple[FleetPlace, float]]] = {}
        """By unit: its pods that run, with their placement and start."""
        self._epochs: dict[str, int] = {}
        """By unit: how often it was placed; ends of earlier placements do not count."""
        self._done_s: dict[str, float] = {}
        """By pod: the work that its checkpoints hold."""
        self._vain: dict[int, int] = {}
        """Forms for which no eviction helped, with their priority: what ends and would have yielded
        to them counted as free."""
        self._results: dict[str, UnitResult] = {}
        self._runs: list[PodRun] = []
        self._stops: list[ReplayStop] = []
        self._returns: dict[str, float] = {}
        """By unit that a policy stopped: its next use."""
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
        units = tuple(self._results.values())
        return ReplayResult(site, units, tuple(self._runs), tuple(self._stops))

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
                self._fleet.set_open(name, is_open=False)
                self._add_event(node.opens_s, _NODE, (name, True))
            if node.closes_s < self._site.end_s:
                self._add_event(max(node.closes_s, self._site.start_s), _NODE, (name, False))
            for outage in node.outages if node.capacity.open else ():
                self._add_event(max(outage.start_s, self._site.start_s), _OUTAGE, (outage, True))
                if outage.end_s < node.closes_s:
                    self._add_event(outage.end_s, _OUTAGE, (outage, False))

    def _add_event(self, at_s: float, kind: int, subject: object) -> None:
        self._count += 1
        heapq.heappush(self._events, (at_s, kind, self._count, subject))

    def _handle(self, kind: int, subject: Any) -> None:
        if kind == _END:
            self._end_pod(*subject)
        elif kind == _PAUSE:
            self._pause_unit(*subject)
        elif kind == _ARRIVE:
            claims = self._scheduler.needs_quota(subject)
            (self._claiming if claims else self._waiting).add(subject)
        elif kind == _LEAVE:
            self._withdraw(subject)
        elif kind == _OUTAGE:
            self._apply_outage(*subject)
        else:
            self._set_open(*subject)

    def _set_open(self, node: str, is_open: bool) -> None:
        self._fleet.set_open(node, is_open=is_open)
        if is_open:
            self._vain.clear()
            self._try_all()

    def _apply_outage(self, outage: NodeOutage, begins: bool) -> None:
        """Take a node's GPUs that fail, as far as they are free, or give them back."""
        if outage.gpus is None:
            self._set_open(outage.node, not begins)
            return
        for number in range(outage.gpus):
            gpu = FleetPod(f"outage {outage.node} {outage.start_s} {number}", gpus=1)
            if not begins and gpu.uid in self._fleet.places:
                self._fleet.release(gpu.uid)
                self._vain.clear()
                self._try_all()
            elif begins and self._fleet.fits(gpu)[self._fleet.row_of[outage.node]]:
                self._fleet.take(self._fleet.find_devices(gpu, outage.node))

    def _withdraw(self, unit: ReplayUnit) -> None:
        """Let a unit that still waits leave."""
        if unit.name in self._claiming:
            self._claiming.remove(unit)
        elif unit.name in self._waiting:
            self._waiting.remove(unit)
            self._scheduler.release(unit)
            self._try_all()

    def _try_all(self) -> None:
        """Try every waiting unit again: something became free."""
        self._verdicts.clear()
        self._claiming.try_again()
        self._waiting.try_again()

    def _resume(self, units: Iterable[ReplayUnit]) -> None:
        """Place what ran when the window began: where it ran, else where it fits."""
        for unit in units:
            placements = self._place_on(unit.nodes, unit)
            if placements is not None:
                if self._scheduler.needs_quota(unit):
                    self._scheduler.hold(unit, self._now)
                self._start(unit, placements)

    def _place_on(self, nodes: Sequence[str], unit: ReplayUnit) -> list[FleetPlace] | None:
        """Return the placement of a unit on its recorded nodes; None = they do not take it."""
        placements = []
        for member, node in zip(unit.members, nodes, strict=True):
            row = self._fleet.row_of.get(node)
            if row is not None and self._fleet.fits(member)[row]:
                placements.append(self._fleet.find_devices(member, node))
                self._fleet.take(placements[-1])
        for placement in placements:
            self._fleet.release(placement.pod.uid)
        return placements if len(placements) == len(unit.members) else None

    def _start_units(self) -> None:
        """Admit and place what can start now, in the scheduler's order."""
        evicted: set[str] = set()
        while self._admit_next(evicted) or self._place_next(evicted):
            pass

    def _admit_next(self, evicted: set[str]) -> bool:
        """Admit the first unit whose quota lets it in; return whether there was one."""
        heads = [(self._rank_claim(unit), unit.queue) for unit in self._claiming.list_heads()]
        heapq.heapify(heads)
        while heads:
            _, queue = heapq.heappop(heads)
            unit = self._claiming.get_head(queue)
            verdict = self._judge(unit)
            if not verdict.admits or unit.name in evicted:
                following = self._claiming.pass_over(unit)
                if following is not None:
                    heapq.heappush(heads, (self._rank_claim(following), queue))
                continue
            self._claiming.remove(unit)
            for victim in verdict.victims:
                self._evict(victim)
                self._scheduler.release(self._units[victim])
                self._claiming.add(self._units[victim])
                evicted.add(victim)
            self._scheduler.hold(unit, self._now)
            self._verdicts.clear()
            self._waiting.add(unit)
            return True
        return False

    def _judge(self, unit: ReplayUnit) -> AdmissionVerdict:
        """Return the verdict of a unit's quota; of equal claims only the first is judged."""
        form = (unit.queue, unit.priority, unit.gpu_milli)
        if form not in self._verdicts:
            self._verdicts[form] = self._scheduler.judge(unit)
        return self._verdicts[form]

    def _rank_claim(self, unit: ReplayUnit) -> Rank:
        """Return the unit's place in Kueue's cycle: refused ones last, borrowers before them."""
        verdict = self._judge(unit)
        return (float(verdict.borrows) if verdict.admits else 2.0, *build_key(unit))

    def _place_next(self, evicted: set[str]) -> bool:
        """Place the first unit that fits or may evict others; return whether there was one."""
        heads = [head for head in self._waiting.list_heads() if head[1].name not in evicted]
        for form, unit in sorted(heads, key=lambda head: self._scheduler.rank(head[1])):
            placements = self._find_placements(form, unit, evicted)
            if placements is None:
                self._waiting.refuse(form, unit)
                continue
            self._waiting.remove(unit)
            self._start(unit, placements)
            # A lower unit that runs now may yield to what could not start before.
            self._waiting.try_above(unit.priority)
            return True
        return False

    def _find_placements(
        self, form: int, unit: ReplayUnit, evicted: set[str]
    ) -> list[FleetPlace] | None:
        """Return where a unit is placed, after the evictions that this needs; None = nowhere."""
        if not (self._scheduler.needs_quota(unit) or self._scheduler.judge(unit).admits):
            return None
        began = self._now == self._site.start_s and unit.first_nodes
        placements = self._place_on(unit.first_nodes, unit) if began else None
        placements = placements or self._fleet.place(unit.members)
        if placements is not None:
            return placements
        victims = [] if form in self._vain else self._choose_victims(unit)
        if not victims:
            self._vain[form] = unit.priority
        for victim in victims:
            self._evict(victim)
            self._waiting.add(self._units[victim])
            evicted.add(victim)
        return self._fleet.place(unit.members) if victims else None

    def _choose_victims(self, unit: ReplayUnit) -> list[str]:
        yields = self._scheduler.choose_yielding(unit)
        if yields is None:
            return []
        units = (
            YieldingUnit(
                name,
                self._units[name].priority,
                max(start_s for _, start_s in pods.values()),
                tuple(place for place, _ in pods.values()),
            )
            for name, pods in self._open.items()
            if pods and yields(self._units[name])
        )
        return sorted(victim.name for victim in choose_victims(unit.members, self._fleet, units))

    def _start(self, unit: ReplayUnit, placements: Iterable[FleetPlace]) -> None:
        epoch = self._epochs[unit.name] = self._epochs.get(unit.name, 0) + 1
        runs = {pod.uid: run_s for pod, run_s in zip(unit.members, unit.run_s, strict=True)}
        pods = self._open[unit.name] = {}
        for placement in placements:
            uid = placement.pod.uid
            self._fleet.take(placement)
            pods[uid] = placement, self._now
            if runs[uid] < inf:
                end_s = self._now + runs[uid] - self._done_s.get(uid, 0.0)
                self._add_event(end_s, _END, (unit, uid, epoch))
        self._scheduler.place(unit)
        if unit.pauses:
            done_s = min(self._done_s.get(pod.uid, 0.0) for pod in unit.members)
            self._add_event(self._now + unit.pauses[0].after_s - done_s, _PAUSE, (unit, epoch))
        result = self._results[unit.name]
        if result.start_s is None:
            start_s = min(unit.arrival_s, self._now) if unit.nodes else self._now
            self._results[unit.name] = UnitResult(unit, start_s, None)
        elif (return_s := self._returns.pop(unit.name, None)) is not None:
            waits = (*result.return_waits_s, self._now - return_s)
            self._results[unit.name] = replace(result, return_waits_s=waits)

    def _pause_unit(self, unit: ReplayUnit, epoch: int) -> None:
        """Stop a unit that still runs as a policy does; its next use makes it wait again."""
        if epoch != self._epochs[unit.name] or unit.name not in self._open:
            return
        pause = unit.pauses[0]
        self._stops.append(self._build_stop(unit))
        self._close_runs(unit.name)
        self._scheduler.leave(unit)
        self._scheduler.release(unit)
        self._vain.clear()
        self._try_all()
        past_s = pause.after_s + pause.pause_s
        if past_s >= max(unit.run_s):
            self._results[unit.name] = replace(self._results[unit.name], end_s=self._now)
            return
        self._done_s.update((pod.uid, 0.0) for pod in unit.members)
        remaining = replace(
            unit,
            run_s=tuple(max(0.0, run_s - past_s) for run_s in unit.run_s),
            pauses=tuple(replace(p, after_s=p.after_s - past_s) for p in unit.pauses[1:]),
            nodes=(),
        )
        self._units[unit.name] = remaining
        self._returns[unit.name] = self._now + pause.pause_s
        self._add_event(self._returns[unit.name], _ARRIVE, remaining)

    def _build_stop(self, unit: ReplayUnit) -> ReplayStop:
        """Return the stop of a unit now, with what its pods that run would have held."""
        pause, runs = unit.pauses[0], self._open[unit.name]
        free_s = min(pause.pause_s, self._site.end_s - self._now)
        gpu_seconds = sum(
            min(free_s, run_s - pause.after_s) * pod.gpus * pod.gpu_milli / WHOLE
            for pod, run_s in zip(unit.members, unit.run_s, strict=True)
            if pod.uid in runs
        )
        usd = None if pause.usd_h is None else gpu_seconds / HOUR_S * pause.usd_h
        return ReplayStop(unit.name, self._now, gpu_seconds, usd)

    def _end_pod(self, unit: ReplayUnit, uid: str, epoch: int) -> None:
        if epoch != self._epochs[unit.name] or uid not in self._open.get(unit.name, ()):
            return
        self._record_run(unit.name, uid)
        self._vain = self._scheduler.select_vain(self._vain, unit)
        if not self._open[unit.name]:
            del self._open[unit.name]
            self._scheduler.leave(unit)
            self._scheduler.release(unit)
            result = self._results[unit.name]
            self._results[unit.name] = replace(result, end_s=self._now)
        self._try_all()

    def _evict(self, name: str) -> None:
        """Take a unit off its nodes, or out of the wait for them."""
        unit, result = self._units[name], self._results[name]
        if name not in self._open:
            self._waiting.remove(unit)
            return
        lost = sum(self._count_lost(unit, run) for run in self._close_runs(name))
        self._scheduler.leave(unit)
        self._results[name] = replace(
            result,
            preemptions=result.preemptions + 1,
            lost_gpu_seconds=result.lost_gpu_seconds + lost,
        )
        self._try_all()

    def _count_lost(self, unit: ReplayUnit, run: PodRun) -> float:
        """Return the GPU-seconds of a run that no checkpoint holds; remember the others."""
        length_s = run.end_s - run.start_s
        if unit.checkpoint_s is None or not length_s:
            return run.gpu_seconds
        saved_s = length_s - length_s % unit.checkpoint_s
        self._done_s[run.uid] = self._done_s.get(run.uid, 0.0) + saved_s
        return run.gpu_seconds * (1 - saved_s / length_s)

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
            placement.pod.gpu_milli,
            start_s,
            self._now,
        )
        self._runs.append(run)
        return run
