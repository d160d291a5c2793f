"""Run the world: people, cluster, pods and failures in one simulated time.

    World.advance(until) ─► events in time order ─► Block of every device and tick
         │                   arrivals · cluster · finished work · owners · faults
    World.store  what the Kubernetes API shows        World.snapshot()  what the exporters show

Between two calls any client may write to the store, as an enforcer does; the world reacts to it in
the next call. Everything follows from the spec, the seed and those writes.
"""

import heapq
import itertools
import threading
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from math import inf
from typing import Any

import msgspec
import numpy as np

from fallow.errors import UsageError
from fallow.kube.objects import get_namespace, get_uid, has_ended, name
from simulator import owner_behaviour, switches
from simulator.arrivals import Arrival, Category, draw_arrivals, read_categories
from simulator.blocks import join_blocks, strand
from simulator.cluster.cluster import SimulatedCluster
from simulator.cluster.nodes import SimulatedNode
from simulator.cluster.objects import get_kind, is_ready
from simulator.cluster.scheduler.requests import Policy
from simulator.exporters.snapshot import WorldSnapshot
from simulator.hardware_faults import HardwareFault, draw_faults
from simulator.kube.history import StoreChange
from simulator.kube.store import ObjectStore
from simulator.models import TICK_S, Block, DeviceAllocation, HostSample, SimulatedDevice
from simulator.supply import fit_mix, list_device_products
from simulator.work.effects import Effect, draw_effects
from simulator.work.host import sample_host
from simulator.work.signals import Carry, EarlierScript, compute_signals
from simulator.workload_scripts import Key, SimulatedWorkload, WorkloadScripts
from simulator.workload_templates import build_base_objects, build_manifest
from simulator.world_log import AdvanceEntry, WorldLog

Object = dict[str, Any]

DAY_S = 86_400.0
HORIZON_S = 30 * DAY_S
FINISHED_TTL_S = 3600.0
"""How long finished jobs stay."""
LONGEST_EFFECT_S = 5400.0
EXPORTED_KINDS = ("Pod", "Node", "Namespace", "ReplicaSet", "Job")
"""Kinds that kube-state-metrics exports."""
MAX_EVENTS = 20_000
ARRIVAL_BATCH = 50
"""Workloads submitted before the cluster acts: the store's history is limited."""
PIECE_S = 6 * 3600.0
"""Time for which ticks are built at once: about 0.5 GB of memory for 600 devices."""


class Heat(msgspec.Struct, frozen=True):
    """A GPU is too hot for full speed in [start, end)."""

    node: str
    index: int
    start_s: float
    end_s: float


class XidEvent(msgspec.Struct, frozen=True):
    """A GPU reports an XID at a time, and stays available."""

    node: str
    index: int
    at_s: float
    code: int


class Spec(msgspec.Struct, frozen=True):
    """The specification of a world."""

    nodes: tuple[SimulatedNode, ...]
    start_s: float
    """First time, seconds since the epoch; a whole tick."""
    mix: tuple[Category, ...] = read_categories()
    placement: Policy = "best-fit"
    fault_rate: float = 1.0
    """How often nodes and GPUs fail, as a multiple of the table's rates; 0 = never."""
    effects: float = 1.0
    """The same for heat, and for XIDs without an outage."""
    returns: bool = True
    """Whether owners restart stopped workloads."""
    horizon_s: float = HORIZON_S
    """How long people submit work."""
    planted: tuple[HardwareFault, ...] = ()
    """Planned faults; nothing else happens to these nodes."""
    heat: tuple[Heat, ...] = ()
    """GPUs that are hot in addition to the random ones."""
    xids: tuple[XidEvent, ...] = ()
    """XIDs in addition to the random ones."""
    submitted: tuple[Arrival, ...] = ()
    """Workloads in addition to those drawn from the mix."""


class WorkloadStop(msgspec.Struct, frozen=True):
    """A stop by a client other than the owner, and the truth about the workload at that time."""

    key: Key
    at_s: float
    gpus: float
    active: bool
    """Whether some of it worked at that time, on a GPU or a host, or was starting."""
    lost_gpu_s: float
    """GPU-seconds of work that has to be repeated."""
    files: bool
    """Whether its owner's files were on no volume: they were deleted with the pod."""
    memory: bool
    """Whether a kernel held values that no file has."""
    idle: bool
    """Whether none of its devices worked at that time."""
    back_s: float | None
    """When its owner needs it and restarts it; None = not within the horizon."""


class World:
    """A fleet, the work submitted to it, and the results.

    Raises:
        UsageError: a start that is not on a tick, no such placement policy.
    """

    def __init__(self, spec: Spec, seed: int) -> None:
        if spec.start_s % TICK_S:
            raise UsageError(
                f"the world cannot begin at {spec.start_s:g}", hint=f"multiples of {TICK_S} s"
            )
        self.spec, self.seed = spec, seed
        self._clock = spec.start_s
        self.store = ObjectStore(lambda: self._clock, seed)
        self.cluster = SimulatedCluster(self.store, spec.nodes, placement=spec.placement, seed=seed)
        self.cast = WorkloadScripts()
        self.stops: list[WorkloadStop] = []
        self.finished: dict[Key, float] = {}
        """When each job that ends by itself was done."""
        mix = fit_mix(spec.mix, spec.nodes)
        end_s = spec.start_s + spec.horizon_s
        gpus = sum(n.pool.gpu_count for n in spec.nodes)
        arrivals = draw_arrivals(mix, gpus, spec.start_s, end_s, seed)
        self._coming = sorted([*arrivals, *spec.submitted], key=lambda a: (a.at_s, a.name))
        planted_nodes = {m.node for m in spec.planted}
        random_faults = draw_faults(spec.nodes, spec.start_s, end_s, seed, often=spec.fault_rate)
        happens = [*spec.planted, *(m for m in random_faults if m.node not in planted_nodes)]
        self._faults = sorted(happens, key=lambda m: (m.at_s, m.node))
        self._effects = _list_effects(spec, self.cluster.devices)
        self.heard: deque[Object] = deque(maxlen=MAX_EVENTS)
        """Events as they were reported, because the server deletes them after a while."""
        categories = [*mix, *(a.category for a in spec.submitted)]
        self._kinds = {c.kind for c in categories}
        self._arrival_index = self._fault_index = 0
        self._due: list[tuple[float, int, str, Any]] = []
        self._number = self._version = self._allocations_seen = 0
        self._open: dict[str, DeviceAllocation] = {}
        self._off: set[Key] = set()
        self._carry: Carry | None = None
        self._pieces: list[Block] = []
        self._from_s = spec.start_s
        self._earlier: dict[str, list[EarlierScript]] = {}
        """Scripts that pods followed before their present ones, since the last tick built."""
        self._block: Block | None = None
        self._snapshot: WorldSnapshot | None = None
        self._lock = threading.RLock()
        self._is_silent = False
        """Whether no ticks are built."""
        self.log: WorldLog | None = None
        """Receives each advance before it runs."""
        for obj in build_base_objects(categories):
            self.store.create(get_kind(obj), obj)

    @property
    def now_s(self) -> float:
        """The time that the world has reached."""
        return self._clock

    @property
    def devices(self) -> tuple[SimulatedDevice, ...]:
        """Every GPU and MIG instance, as blocks order them."""
        return self.cluster.devices

    def advance(self, until_s: float) -> Block:
        """Run until a time, and return the truth about each tick until then.

        Raises:
            UsageError: the time is not later than now, or not on a tick.
        """
        if until_s <= self._clock or until_s % TICK_S:
            raise UsageError(
                f"the world is at {self._clock:.0f} and cannot go to {until_s:g}",
                hint=f"a later time, a multiple of {TICK_S} s",
            )
        with self._lock:
            if self.log is not None:
                self.log.append(AdvanceEntry(until_s))
            self._run(until_s)
            block = strand(join_blocks(self._pieces), self._waiting())
            self._pieces = []
            self._block, self._snapshot = block, None
            self._forget_scripts(block.start)
        return block

    def skip(self, until_s: float) -> None:
        """Run until a time as `advance` does, without the truth about the ticks until then.

        The truth takes more than half of the time of a run, and a world that is restored was in
        these ticks before: call `resume` after the last one.
        """
        with self._lock:
            since_s, self._is_silent = self._clock, True
            self._run(until_s)
            self._is_silent = False
            self._forget_scripts(since_s)

    @property
    def carry(self) -> Carry | None:
        """The devices' counters after the last tick; None = there was no tick yet."""
        return self._carry

    def resume(self, carry: Carry) -> None:
        """Go on after skipped time: with the devices' counters, and with no event unread."""
        self._carry = carry
        self.heard.clear()

    def _run(self, until_s: float) -> None:
        self._settle()
        while (at_s := self._next()) < until_s:
            self._clock = max(at_s, self._clock)
            self._happen()
            self._settle()
        self._clock = until_s
        self._emit(until_s)

    def _forget_scripts(self, since_s: float) -> None:
        """Forget the scripts of pods that ended before a time.

        Host samples of this time must be read before the next block.
        """
        allocations = self.list_allocations(since_s, self._clock)
        self.cast.forget({*self._open, *(t.holder.uid for t in allocations)})

    def snapshot(self) -> WorldSnapshot:
        """Return what is visible now; before the first advance, one tick is built.

        Raises:
            UsageError: see `advance`.
        """
        with self._lock:
            block = self._block or self.advance(self._clock + TICK_S)
            if self._snapshot is None:
                objects = {kind: self.store.list(kind) for kind in EXPORTED_KINDS}
                allocations = [t for t in self._open.values() if t.share < 1]
                tick = len(block.ticks) - 1
                self._snapshot = WorldSnapshot(
                    block, tick, objects, self.sample_hosts(), allocations
                )
            return self._snapshot

    def sample_hosts(self) -> list[HostSample]:
        """Return the host samples of every running pod that holds devices."""
        with self._lock:
            at_s = self._clock - TICK_S
            return [
                sample_host(t.holder, self.cast.scripts[u], at_s)
                for u, t in self._open.items()
                if self._runs(u)
            ]

    def list_allocations(self, since_s: float, until_s: float) -> list[DeviceAllocation]:
        """Return the allocations in [since, until)."""
        return [t for t in self.cluster.allocations if t.start_s < until_s and t.end_s > since_s]

    def lose(self, node: str, why: str, until_s: float, *, index: int | None = None) -> None:
        """Let a node, or with `index` one of its GPUs, fail from now until a time.

        Raises:
            UsageError: no such node, cause (node-lost, spot, xid, cordoned) or GPU.
        """
        with self._lock:
            self.cluster.lose(node, self._clock, why, until_s, index=index)
            self._close_lost()

    # events

    def _next(self) -> float:
        next_arrival = (
            self._coming[self._arrival_index].at_s
            if self._arrival_index < len(self._coming)
            else inf
        )
        next_fault = (
            self._faults[self._fault_index].at_s if self._fault_index < len(self._faults) else inf
        )
        due = self._due[0][0] if self._due else inf
        return min(next_arrival, next_fault, due, self.cluster.next_event())

    def _happen(self) -> None:
        arrivals_due = self._coming[self._arrival_index : self._arrival_index + ARRIVAL_BATCH]
        for arrival in itertools.takewhile(lambda a: a.at_s <= self._clock, arrivals_due):
            self._bring(arrival)
            self._arrival_index += 1
        while (
            self._fault_index < len(self._faults)
            and self._faults[self._fault_index].at_s <= self._clock
        ):
            fault = self._faults[self._fault_index]
            self._fault_index += 1
            self.lose(fault.node, fault.why, fault.until_s, index=fault.index)
        while self._due and self._due[0][0] <= self._clock:
            _, _, method, about = heapq.heappop(self._due)
            getattr(self, f"_{method}")(about)

    def _later(self, at_s: float, method: str, about: Any) -> None:
        self._number += 1
        heapq.heappush(self._due, (at_s, self._number, method, about))

    def _bring(self, arrival: Arrival) -> None:
        self.cast.add(arrival)
        obj = build_manifest(arrival)
        self.store.create(get_kind(obj), obj, manager="kubectl-create")

    def _finish(self, about: tuple[str, float]) -> None:
        """End a pod whose work is done, unless it was interrupted meanwhile."""
        pod_uid, done_s = about
        script = self.cast.scripts.get(pod_uid)
        workload = self.cast.role(pod_uid)
        if workload is not None and script is not None and script.done_s == done_s:
            self.finished[_build_key(workload)] = self._clock
            self.cluster.finish(pod_uid, self._clock, ok=True)

    def _leave(self, key: Key) -> None:
        """Let an owner delete work."""
        kind, space, called_so = key
        if self.store.get(kind, called_so, space) is not None:
            self.store.delete(kind, called_so, space)

    def _return(self, key: Key) -> None:
        """Let an owner restart a stopped workload."""
        kind, space, called_so = key
        obj = self.store.get(kind, called_so, space)
        if obj is not None and switches.is_off(obj):
            body = switches.build_on_patch(self.cast.roles[key].arrival.category)
            self.store.patch(kind, called_so, space, body, manager="kubectl-patch")

    def _settle(self) -> None:
        while True:
            self.cluster.settle(self._clock)
            self._hold()
            if not self._watch():
                return

    def _hold(self) -> None:
        """Assign scripts to new holders of devices."""
        allocations = self.cluster.allocations
        new = allocations[self._allocations_seen :]
        self._allocations_seen = len(allocations)
        for allocation in new:
            pod_uid = allocation.holder.uid
            self._keep_scripts([pod_uid])
            if self.cast.hold(allocation.holder, self._clock):
                self._open[pod_uid] = allocation

    def _watch(self) -> bool:
        """Process the cluster's changes; return whether the world reacted to them."""
        acted = False
        self._version, changes = self.store.changes(self._version)
        for change in changes:
            if change.kind == "Event" and change.type != "DELETED":
                self.heard.append(change.object)
            elif change.kind == "Pod":
                acted |= self._pod(change)
            elif change.type == "MODIFIED" and get_kind(change.object) in self._kinds:
                self._owner(change.object)
        return acted

    def _pod(self, change: StoreChange) -> bool:
        pod = change.object
        pod_uid = get_uid(pod)
        if change.type == "DELETED" or has_ended(pod):
            return self._end_pod(pod_uid)
        if pod_uid in self._open and is_ready(pod) and not self._runs(pod_uid):
            self._keep_scripts(self.cast.list_waiting_ranks(pod_uid))
            for ready_uid, done_s in self.cast.begin(pod_uid, self._clock):
                self._later(done_s, "finish", (ready_uid, done_s))
            self._count_life(self.cast.role(pod_uid))
        return False

    def _runs(self, pod_uid: str) -> bool:
        return self.cast.runs(pod_uid)

    def _count_life(self, workload: SimulatedWorkload | None) -> None:
        """Schedule the deletion of work that never ends by itself."""
        if workload is None or workload.since_s is None or workload.counted:
            return
        workload.counted = True
        life_s = workload.arrival.life_s
        if life_s < inf and not any(r.done_s is not None for r in workload.running.values()):
            self._later(workload.since_s + life_s, "leave", _build_key(workload))

    def _end_pod(self, pod_uid: str) -> bool:
        self._open.pop(pod_uid, None)
        workload = self.cast.role(pod_uid)
        others = self.cast.end(pod_uid, self._clock)
        for other in others:
            self.cluster.finish(other, self._clock, ok=False)
        if workload is not None and not workload.parts and _build_key(workload) in self.finished:
            self._later(self._clock + FINISHED_TTL_S, "leave", _build_key(workload))
        return bool(others)

    def _close_lost(self) -> None:
        """End the scripts of pods whose node was just lost."""
        allocations = self.cluster.allocations
        still = {t.holder.uid for t in allocations if t.end_s == inf}
        for pod_uid in [u for u in self._open if u not in still]:
            self._end_pod(pod_uid)

    def _owner(self, obj: Object) -> None:
        """Process a change of an owner's object: it may have been switched off, or on again."""
        key = (get_kind(obj), get_namespace(obj), name(obj))
        workload = self.cast.roles.get(key)
        if workload is None:
            return
        if not switches.is_off(obj):
            self._off.discard(key)
        elif key not in self._off:
            self._off.add(key)
            back_s = owner_behaviour.return_time(
                workload, self._clock, self.spec.start_s + self.spec.horizon_s
            )
            self.stops.append(self._stop(workload, back_s))
            if back_s is not None and self.spec.returns:
                self._later(back_s, "return", key)

    def _stop(self, workload: SimulatedWorkload, back_s: float | None) -> WorkloadStop:
        now = np.array([self._clock])
        scripts = list(workload.running.values())
        weight = workload.arrival.category.gpus * workload.arrival.category.weight
        return WorkloadStop(
            key=_build_key(workload),
            at_s=self._clock,
            gpus=weight * len(workload.parts),
            active=not scripts or any(bool(s.active(now)[0]) for s in scripts),
            files=not workload.arrival.on_volume and any(s.used(self._clock) for s in scripts),
            memory=any(s.kernel_memory(self._clock) for s in scripts),
            lost_gpu_s=sum(s.unsaved_s(self._clock) for s in scripts) * weight,
            idle=bool(scripts) and all(bool(s.idle_held(now)[0]) for s in scripts),
            back_s=back_s,
        )

    # the truth

    def _keep_scripts(self, uids: Iterable[str]) -> None:
        """Keep the scripts of pods that are about to get others: the ticks so far follow them."""
        for pod_uid in uids:
            script = self.cast.scripts.get(pod_uid)
            if script is not None and self._from_s < self._clock:
                entry = EarlierScript(self._clock, script)
                self._earlier.setdefault(pod_uid, []).append(entry)

    def _emit(self, until_s: float) -> None:
        """Build the ticks before a time, with the scripts that pods followed at each."""
        self._build_ticks(until_s)
        self._earlier = {}

    def _build_ticks(self, until_s: float) -> None:
        if self._is_silent:
            self._from_s = until_s
            return
        while self._from_s < until_s:
            upto_s = min(self._from_s + PIECE_S, until_s)
            ticks = np.arange(self._from_s, upto_s, TICK_S)
            upto_s = float(ticks[-1]) + TICK_S
            since = self._from_s - LONGEST_EFFECT_S
            happened = (
                draw_effects(self.devices, self.seed, since, upto_s, often=self.spec.effects)
                if self.spec.effects
                else ()
            )
            allocated = [
                t
                for t in self.list_allocations(self._from_s, upto_s)
                if t.holder.uid in self.cast.scripts
            ]
            block, self._carry = compute_signals(
                self.devices,
                allocated,
                self.cast.scripts,
                self.cluster.outages,
                ticks,
                self._carry,
                (*happened, *self._effects),
                self._earlier,
            )
            self._pieces.append(block)
            self._from_s = upto_s

    def _waiting(self) -> Iterator[tuple[Sequence[int], float, float]]:
        """Yield which devices would have fitted a pending pod, and from when."""
        since = self._pieces[0].start
        rows = defaultdict(list)
        for row, key in enumerate(list_device_products(self.devices, self.spec.nodes)):
            rows[key].append(row)
        for wait in self.cluster.waits:
            ends = wait.bound_s or wait.ended_s or self._clock
            if ends <= max(since, wait.queued_s + TICK_S):
                continue
            kind, space, called_so = wait.owner.split("/")
            workload = self.cast.roles.get((kind, space, called_so))
            if workload is not None:
                category = workload.arrival.category
                yield rows[category.product, category.resource], wait.queued_s, ends


def _list_effects(spec: Spec, devices: Sequence[SimulatedDevice]) -> tuple[Effect, ...]:
    """Return the planned effects on devices."""
    places: dict[tuple[str, int], list[int]] = {}
    for place, device in enumerate(devices):
        places.setdefault((device.node, device.index), []).append(place)
    return (
        *(
            Effect(place, period.start_s, period.end_s, "thermal")
            for period in spec.heat
            for place in places.get((period.node, period.index), ())
        ),
        *(
            Effect(place, event.at_s, event.at_s, "xid", event.code)
            for event in spec.xids
            for place in places.get((event.node, event.index), ())
        ),
    )


def _build_key(workload: SimulatedWorkload) -> Key:
    category = workload.arrival.category
    return category.kind, category.namespace, workload.arrival.name
