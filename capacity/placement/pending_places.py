"""Find out where a pending workload would fit: in which cluster, pool and zone.

A place takes the workload if all of its waiting pods can be placed there at the same time: on nodes
that are ready, whose taints the pods tolerate and whose labels they select, on devices that are
known to be free, with enough CPU and memory, and if the quotas of the cluster let them in. A
device that telemetry has not shown lately is unknown and never free: where only such devices would
make the difference, the answer is unknown.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Literal

import msgspec

from capacity.placement.flavors import FlavorQuota, FlavorVariant, list_variants
from capacity.placement.fleet_state import (
    FleetState,
    NodeKey,
    PodRecord,
    WorkloadKey,
    convert_micros,
    to_micros,
)
from capacity.placement.node_capacities import PlacementNode, judge_node, measure_nodes
from capacity.placement.pod_demand import (
    FreeCapacity,
    PodDemand,
    build_demand,
    count_devices,
    get_owner_key,
    place_pods,
)
from capacity.placement.pod_rules import explain_rule
from capacity.quota.room import QuotaAnswer, QuotaRoom
from fallow.protocols import Views

LOOKBACK = timedelta(hours=1)

PlaceState = Literal["fits", "short", "refused", "unknown"]
Answer = Literal["fits_here", "fits_elsewhere", "nowhere", "unknown"]
ANSWERS: tuple[Answer, ...] = ("fits_here", "fits_elsewhere", "unknown", "nowhere")
"""The best answer first."""


class PlaceAnswer(msgspec.Struct, frozen=True):
    """Whether one place takes the workload. `pool` and `zone` None = the whole cluster.

    `free`: devices of the requested types that are known to be free on its ready nodes. `fits`:
    all pods can be placed. `short`: they are legal there and too little is free. `refused`: a
    taint, a label or a quota keeps them away. `room`: they would fit if the place did not.
    """

    cluster: str
    pool: str | None
    zone: str | None
    state: PlaceState
    why: str
    free: int
    room: bool
    nodes: tuple[str, ...] = ()
    """The nodes of the placement that was found."""


class PendingAnswer(msgspec.Struct, frozen=True):
    """Where a pending workload fits; the places with room first."""

    key: WorkloadKey
    pods: int
    gpus: float
    since: datetime
    answer: Answer
    why: str
    places: tuple[PlaceAnswer, ...]

    def describe(self) -> str:
        """Return the answer in words, with the clusters and pools that fit."""
        if self.answer == "fits_elsewhere":
            names = []
            for cluster in sorted({p.cluster for p in self.places if p.state == "fits"}):
                pools = sorted(
                    {
                        place.pool
                        for place in self.places
                        if place.cluster == cluster and place.pool and place.state == "fits"
                    }
                )
                within = f" (pool {', '.join(pools)})" if pools else ""
                names.append(f"cluster {cluster}{within}")
            return ", ".join(names)
        if self.answer == "fits_here":
            return "its own cluster has room"
        return "nowhere" if self.answer == "nowhere" else f"unknown: {self.why}"


def mark_places_unknown(answer: PendingAnswer, why: str) -> PendingAnswer:
    """Return an answer in which no place is known to fit, for a reason."""
    places = _sort_places(
        msgspec.structs.replace(place, state="unknown", why=why, nodes=())
        if place.state == "fits"
        else place
        for place in answer.places
    )
    if not places:
        return answer
    verdict, text = _summarize(answer.key[0], places)
    return msgspec.structs.replace(answer, answer=verdict, why=text, places=tuple(places))


class PendingPlaces:
    """The places of every cluster at one time."""

    def __init__(self, views: Views, now: datetime) -> None:
        self._now, self._at = now, to_micros(now)
        self.state = FleetState(views, now - LOOKBACK, now)
        self.quotas = QuotaRoom(views, now)
        self.nodes = measure_nodes(self.state, now)
        self._refusals: dict[tuple[NodeKey, PodDemand], tuple[str, bool]] = {}
        self._places: dict[object, list[PlaceAnswer]] = {}
        """By what decides them: many pending workloads request the same."""

    def list_pending(self) -> dict[WorkloadKey, list[PodRecord]]:
        """Return the workloads that wait for GPUs, each with its waiting pods."""
        by_key: dict[WorkloadKey, list[PodRecord]] = {}
        for pod in self.state.pending_at(self._at):
            by_key.setdefault(get_owner_key(pod), []).append(pod)
        return dict(sorted(by_key.items()))

    def list_ahead(self) -> list[PodRecord]:
        """Return waiting pods that the API's clock, ahead of ours, created in the future."""
        return [
            pod
            for pod in self.state.all_pods
            if pod.gpus > 0
            and pod.node is None
            and pod.phase == "Pending"
            and pod.begin >= self._at > pod.begin - max(0, pod.ahead or 0)
        ]

    def count_needs(self, pods: Sequence[PodRecord]) -> Mapping[str, float]:
        """Return the devices that pods request, by resource."""
        by_resource: Counter[str] = Counter()
        for pod in pods:
            if pod.gpu_resource:
                by_resource[pod.gpu_resource] += count_devices(pod)
        return by_resource

    def explain(self, key: WorkloadKey, pods: Sequence[PodRecord]) -> PendingAnswer:
        """Return where these pending pods of a workload would fit together.

        With flavors of Kueue it is the answer of the flavor that takes them best. Where a rule
        between pods is not checked, no place is known to take them.
        """
        variants = list_variants(key, pods, self.quotas)
        answers = [self.explain_variant(key, pods, variant) for variant in variants]
        answer = min(answers, key=lambda answer: ANSWERS.index(answer.answer))
        rule = explain_rule(pod.constraints for pod in pods)
        return mark_places_unknown(answer, rule) if rule else answer

    def explain_variant(
        self, key: WorkloadKey, pods: Sequence[PodRecord], variant: FlavorVariant
    ) -> PendingAnswer:
        """Return where pending pods would fit with one assignment of flavors of their queue.

        Flavors are of the own cluster: in others the pods count as they are.
        """
        own = self._explain_pods(key, variant)
        if not variant.flavors:
            return own
        plain = FlavorVariant((), tuple(pods), FlavorQuota(self.quotas))
        other = self._explain_pods(key, plain)
        places = _sort_places(
            [*(p for p in own.places if p.cluster == key[0]),
             *(p for p in other.places if p.cluster != key[0])]
        )  # fmt: skip
        answer, why = _summarize(key[0], places) if places else (own.answer, own.why)
        if variant.untried and answer == "nowhere":
            answer, why = "unknown", variant.untried
        return msgspec.structs.replace(own, answer=answer, why=why, places=tuple(places))

    def _explain_pods(self, key: WorkloadKey, variant: FlavorVariant) -> PendingAnswer:
        pods = variant.pods
        demand = build_demand(key[0], pods)
        since = convert_micros(min(pod.begin for pod in pods))
        gpus = round(sum(pod.gpus for pod in pods), 6)
        if demand is None:
            why = f"whether {pods[0].gpu_resource} fits is not worked out"
            return PendingAnswer(key, len(pods), gpus, since, "unknown", why, ())
        needs = self.count_needs(pods) if variant.needs is None else variant.needs
        same = (key[:2] if variant.flavors else key[1], pods[0].queue, demand.needs,
                variant.flavors, tuple(sorted(needs.items())))  # fmt: skip
        if same not in self._places:
            self._places[same] = self._list_places(
                key[1], pods[0].queue, demand.needs, needs, variant.quotas
            )
        places = self._places[same]
        answer, why = _summarize(key[0], places)
        return PendingAnswer(key, len(pods), gpus, since, answer, why, tuple(places))

    def _list_places(
        self,
        namespace: str,
        queue: str | None,
        needs: Sequence[PodDemand],
        by_resource: Mapping[str, float],
        quotas: FlavorQuota,
    ) -> list[PlaceAnswer]:
        """Return the answers of all places, those with room first."""
        places = [
            place
            for cluster in sorted({node.key[0] for node in self.nodes})
            for place in self._explain_cluster(
                cluster, needs, quotas.admits(cluster, namespace, queue, by_resource)
            )
        ]
        return _sort_places(places)

    def _explain_cluster(
        self, cluster: str, needs: Sequence[PodDemand], quota: QuotaAnswer
    ) -> Iterable[PlaceAnswer]:
        nodes = [node for node in self.nodes if node.key[0] == cluster]
        yield self._explain_place((cluster, None, None), nodes, needs, quota)
        parts = sorted({(node.pool, node.zone) for node in nodes})
        if len(parts) > 1:
            for pool, zone in parts:
                part = [node for node in nodes if (node.pool, node.zone) == (pool, zone)]
                yield self._explain_place((cluster, pool, zone), part, needs, quota)

    def _explain_place(
        self,
        place_key: tuple[str, str | None, str | None],
        nodes: Sequence[PlacementNode],
        needs: Sequence[PodDemand],
        quota: QuotaAnswer,
    ) -> PlaceAnswer:
        """Place the pods on known free devices; then say what keeps them away."""
        refusals = {
            (node.key, need): self._explain_refusal(node, need)
            for node in nodes
            for need in set(needs)
        }
        free_nodes = {node.key: node.free for node in nodes}
        possible = {node.key: node.possible for node in nodes}
        legal = {pair for pair, (why, _) in refusals.items() if not why}
        maybe = {pair for pair, (why, sure) in refusals.items() if not why or not sure}

        def place(
            capacities: Mapping[NodeKey, FreeCapacity], pairs: set[tuple[NodeKey, PodDemand]]
        ) -> tuple[tuple[PodDemand, ...], Mapping[NodeKey, FreeCapacity]]:
            return place_pods(
                needs, capacities, lambda d: [k for k in free_nodes if (k, d) in pairs]
            )

        left, used_nodes = place(free_nodes, legal)
        room = not place(free_nodes, set(refusals))[0]
        state: PlaceState
        if quota.admitted is False:
            state, why = "refused", quota.why
        elif not left:
            state, why = ("fits", "") if quota.admitted else ("unknown", quota.why)
        elif not (left_at_best := place(possible, maybe)[0]):
            state, why = "unknown", self._explain_doubt(nodes, refusals)
        elif room:
            state, why = "refused", next(w for w, _ in sorted(refusals.values()) if w)
        elif _check_each_alone(needs, free_nodes, legal):
            state, why = "unknown", "each pod fits alone; no placement of all of them was found"
        else:
            state, why = "short", _explain_lack(left_at_best, needs, possible, maybe)
        names = tuple(sorted(key[1] for key in used_nodes)) if state == "fits" else ()
        return PlaceAnswer(*place_key, state, why, _count_free(nodes, needs), room, names)

    def _explain_refusal(self, node: PlacementNode, demand: PodDemand) -> tuple[str, bool]:
        """Return why a node does not take a pod, empty = it does; and whether that is certain."""
        if (node.key, demand) not in self._refusals:
            self._refusals[node.key, demand] = judge_node(node, demand)
        return self._refusals[node.key, demand]

    def _explain_doubt(
        self,
        nodes: Sequence[PlacementNode],
        refusals: Mapping[tuple[NodeKey, PodDemand], tuple[str, bool]],
    ) -> str:
        doubts = sorted({why for why, sure in refusals.values() if why and not sure})
        if doubts:
            return doubts[0]
        unknown = sum(
            count - node.free.devices.get(kind, 0)
            for node in nodes
            for kind, count in node.possible.devices.items()
        )
        return f"whether {unknown} more devices are free is not known: telemetry does not show them"


def _sort_places(places: Iterable[PlaceAnswer]) -> list[PlaceAnswer]:
    """Return places in their order: those with room first, then by name."""
    order = {"fits": 0, "unknown": 1, "refused": 2, "short": 3}
    return sorted(
        places,
        key=lambda p: (order[p.state], p.cluster, p.pool is not None, p.pool or "", p.zone or ""),
    )


def _summarize(cluster: str, places: Sequence[PlaceAnswer]) -> tuple[Answer, str]:
    """Return the answer over all places; a place in the same cluster comes before another one."""
    fitting = [place for place in places if place.state == "fits"]
    here = [place for place in fitting if place.cluster == cluster]
    if here:
        return "fits_here", "free capacity would take it: its queue or the scheduler holds it back"
    if fitting:
        names = ", ".join(sorted({place.cluster for place in fitting}))
        return "fits_elsewhere", f"all of its pods fit in cluster {names}"
    if doubts := [place for place in places if place.state == "unknown"]:
        return "unknown", doubts[0].why
    own = [p for p in places if p.cluster == cluster and p.pool is None]
    return "nowhere", own[0].why if own else "no cluster has a node with GPUs"


def _count_free(nodes: Sequence[PlacementNode], needs: Sequence[PodDemand]) -> int:
    """Return the free devices of the types that pods need, on nodes that take pods."""
    types = {need.device_type for need in needs if need.count}
    return sum(
        node.free.devices.get(kind, 0)
        for node in nodes
        for kind in types
        if node.ready is True and not node.cordoned
    )


def _check_each_alone(
    needs: Sequence[PodDemand],
    free_nodes: Mapping[NodeKey, FreeCapacity],
    legal: set[tuple[NodeKey, PodDemand]],
) -> bool:
    """Return whether each of several kinds of pods fits on some node that takes it."""
    return len(set(needs)) > 1 and all(
        any((key, need) in legal and free_nodes[key].fits(need) for key in free_nodes)
        for need in needs
    )


def _explain_lack(
    left: Sequence[PodDemand],
    needs: Sequence[PodDemand],
    free_nodes: Mapping[NodeKey, FreeCapacity],
    legal: set[tuple[NodeKey, PodDemand]],
) -> str:
    need = left[0]
    words = f"{need.device_type} instances" if need.device_type else "whole GPUs"
    if len(left) < len(needs):
        return f"{len(needs) - len(left)} of its {len(needs)} pods fit"
    open_nodes = [key for key in free_nodes if (key, need) in legal]
    if not open_nodes:
        return f"no node that takes it has free {words}"
    most = max(free_nodes[key].devices.get(need.device_type, 0) for key in open_nodes)
    if most < need.count:
        return f"it needs {need.count} {words} on one node, {most} are free"
    return "CPU or memory of the nodes with enough free devices would not do"
