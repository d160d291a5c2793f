"""Find the way in after moves: pods that restart elsewhere free whole GPUs for a waiting workload.

The moves are those of a defragmentation plan of one pool: only pods that its rules let move, all
of them to capacity that is free before the first move. Where no pool has such moves, those to
other pools of the same type of node are tried. The waiting pods are then placed by the judge of
every other way, on what is free after the moves.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cached_property

from analyzers.fragmentation.cluster_state import ClusterState, read_cluster_states, remove_pods
from analyzers.fragmentation.defragmentation import MIB, apply_plan, build_placement
from analyzers.fragmentation.node_pools import ModelPool, group_pools
from analyzers.fragmentation.placement import WHOLE, FreeSlot, MovePlan, PoolPlacement
from analyzers.fragmentation.planning import plan_moves
from analyzers.fragmentation.rows import NodePod, read_movable_kinds
from capacity.placement.fleet_state import NodeKey, WorkloadKey
from capacity.placement.pod_demand import FreeCapacity, PodDemand, place_pods
from capacity.queue.records import WayIn, WorkAtRisk
from capacity.queue.stop_sets import WaitingDemand
from fallow.protocols import Views
from fallow.settings.capacity import FragmentationSettings
from fallow.window import Window

STATE_LENGTH = timedelta(hours=1)
"""The state of a cluster is that of the newest device samples of this time."""
MOST_SECONDS = 1.0
"""Longest search for the plan of one pool: many workloads may wait."""
NO_PLAN = "no moves of pods that may move would free enough GPUs of one node"
NOT_PLANNED = "moves for it are not planned here: fallow why-pending plans them"
Pods = tuple[PodDemand, ...]


class MovesWay:
    """Finds moves that let waiting workloads in, at one time.

    `most_seconds`: how long it plans in all, for readers who wait; then its answer is unknown.
    """

    def __init__(
        self,
        views: Views,
        now: datetime,
        settings: FragmentationSettings,
        *,
        most_seconds: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._views, self._now, self._settings = views, now, settings
        self._most_seconds, self._clock, self._spent_s = most_seconds, clock, 0.0

    @cached_property
    def _states(self) -> dict[str, ClusterState]:
        settings = self._settings
        window = Window(self._now - STATE_LENGTH, self._now)
        read = read_cluster_states(self._views, window, settings.cover, settings.least_pods)
        return {state.cluster: state for state in read}

    def find(
        self,
        demand: WaitingDemand,
        left: Pods,
        stopped: frozenset[WorkloadKey] = frozenset(),
    ) -> WayIn:
        """Return the moves with the fewest restarts; `left` are the pods without a place now.

        `stopped`: workloads that stop before; what they free is free in `demand` already.
        """
        if self._most_seconds is not None and self._spent_s >= self._most_seconds:
            return WayIn("after_moves", "unknown", NOT_PLANNED)
        begin = self._clock()
        way = self._find(demand, left, stopped)
        self._spent_s += self._clock() - begin
        return way

    def _find(self, demand: WaitingDemand, left: Pods, stopped: frozenset[WorkloadKey]) -> WayIn:
        state = self._states.get(demand.key[0])
        if state is not None and stopped:
            state = remove_pods(state, stopped)
        if state is None or any(need.device_type for need in demand.needs):
            why = (
                "moves are planned for whole GPUs" if state else "its nodes' devices are not known"
            )
            return WayIn("after_moves", "refused", why)
        pools = group_pools(state)
        ways = [
            way
            for pool in pools
            if (way := self._plan(state, _find_legal(state, pool.rows, demand), demand, left))
        ]
        if all(way.lost.gpu_hours is None for way in ways):
            ways += self._list_between(state, pools, demand, left)
        return min(ways, key=_rank, default=WayIn("after_moves", "refused", NO_PLAN))

    def _list_between(
        self, state: ClusterState, pools: Sequence[ModelPool], demand: WaitingDemand, left: Pods
    ) -> Iterator[WayIn]:
        """Yield ways by moves to other pools of the same GPU model, or to nodes not of its own.

        A pod that Kueue admitted has the labels of its flavor in its selector: it stays in it.
        """
        for model in sorted({pool.model for pool in pools} - {""}):
            alike = [pool for pool in pools if pool.model == model]
            rows = [n for pool in alike for n in pool.rows]
            legal = _find_legal(state, rows, demand)
            others = [
                n for n in set(rows) - set(legal) if state.nodes[n].open and state.gpu[-1][n].any()
            ]
            if others or sum(bool(_find_legal(state, pool.rows, demand)) for pool in alike) > 1:
                way = self._plan(state, legal, demand, left, others)
                if way is not None:
                    yield way

    def _plan(
        self,
        state: ClusterState,
        legal: Sequence[int],
        demand: WaitingDemand,
        left: Pods,
        others: Sequence[int] = (),
    ) -> WayIn | None:
        """Return the way by moves between nodes that take it and to others; None = there is none.

        `others`: nodes that do not take the waiting pods.
        """
        cluster = state.cluster
        slot = FreeSlot(
            max(need.count for need in left),
            max(need.cpu_milli for need in left),
            -(-max(need.memory_bytes for need in left) // MIB),
        )
        if not legal or max(len(state.devices[n]) for n in legal) < slot.gpus:
            return None
        on = build_placement(
            state, sorted([*legal, *others]), slot, self._settings.move_kinds, frozenset(others)
        )
        seconds = min(MOST_SECONDS, self._settings.plan_seconds)
        plan = plan_moves(on, len(left), seconds)
        if plan is None:
            return None
        capacities = {
            key: capacity
            for key, capacity in _compute_capacities(cluster, demand, on, plan).items()
            if key in demand.legal_nodes
        }
        without, used = place_pods(
            demand.needs, capacities, lambda need: sorted(demand.legal[need] & capacities.keys())
        )
        return None if without else _describe(state, on, plan, used)


def _find_legal(state: ClusterState, rows: Sequence[int], demand: WaitingDemand) -> list[int]:
    """Return those of some nodes that take a waiting pod."""
    return [n for n in rows if (state.cluster, state.nodes[n].name) in demand.legal_nodes]


def _compute_capacities(
    cluster: str, demand: WaitingDemand, on: PoolPlacement, plan: MovePlan
) -> dict[NodeKey, FreeCapacity]:
    """Return what is free on the nodes after the moves: what is free now, and the difference."""
    cpu, gpu = apply_plan(on, plan)
    memory = [0] * len(on.places)
    pods = {tenant.uid: tenant for tenant in on.tenants}
    for move in plan.moves:
        memory[move.source] += pods[move.uid].memory_mib * MIB
        memory[move.target] -= pods[move.uid].memory_mib * MIB
    capacities = {key: node.free.copy() for key, node in demand.nodes.items()}
    for k, place in enumerate(on.places):
        capacity = capacities.get((cluster, place.name))
        if capacity is None:
            continue
        more = int((gpu[k] >= WHOLE).sum()) - on.free(k)
        capacity.devices[""] = capacity.devices.get("", 0) + more
        capacity.cpu_milli += int(cpu[k]) - place.cpu_milli
        capacity.memory_bytes += memory[k]
    return capacities


def _describe(
    state: ClusterState, on: PoolPlacement, plan: MovePlan, used: Mapping[NodeKey, FreeCapacity]
) -> WayIn:
    tenants = {tenant.uid: tenant for tenant in on.tenants}
    owners = {pod.uid: pod for pod in state.pods}
    moved = [owners[move.uid] for move in plan.moves]
    restarts = f"{plan.restarts} pod{'s' * (plan.restarts != 1)} restart"
    pools = {node.name: node.pool for node in state.nodes}
    changes = {
        (pools[on.places[m.source].name], pools[on.places[m.target].name]) for m in plan.moves
    }
    notes = [f"from pool {old} to {new}" for old, new in sorted(changes) if old != new]
    if not state.budgets.is_polled(state.cluster):
        notes.append("disruption budgets are not collected")
    return WayIn(
        "after_moves",
        "holds",
        "; ".join(notes),
        state.cluster,
        tuple(sorted(key[1] for key in used)),
        tuple(sorted({_get_owner(state.cluster, pod) for pod in moved})),
        gpus=sum(tenants[move.uid].gpus for move in plan.moves),
        lost=_estimate_loss(moved, restarts),
        moves=tuple(
            f"{tenants[move.uid].name}: {on.places[move.source].name} to "
            f"{on.places[move.target].name}"
            for move in plan.moves
        ),
        touched=tuple(
            sorted({on.places[n].name for move in plan.moves for n in (move.source, move.target)})
        ),
    )


def _estimate_loss(moved: Sequence[NodePod], restarts: str) -> WorkAtRisk:
    """Return what moves lose: nothing of the kinds that hold no work, else it is not known."""
    kinds = read_movable_kinds()
    others = {p.workload_kind or "" for p in moved if not _is_moving(p, kinds)}
    if others:
        return WorkAtRisk(None, f"{restarts}; what {', '.join(sorted(others))} loses is not known")
    return WorkAtRisk(0.0, f"{restarts}; their controllers start them elsewhere")


def _is_moving(pod: NodePod, kinds: Mapping[str, object]) -> bool:
    kind = kinds.get(pod.workload_kind or "")
    return bool(getattr(kind, "moves", False))


def _get_owner(cluster: str, pod: NodePod) -> WorkloadKey:
    return cluster, pod.namespace or "", pod.workload_kind or "", pod.workload or ""


def _rank(way: WayIn) -> tuple[bool, int, int, tuple[str, ...]]:
    """Return the order of ways: no loss that is unknown, the fewest moves, the fewest GPUs."""
    return way.lost.gpu_hours is None, len(way.moves), way.gpus, way.nodes
