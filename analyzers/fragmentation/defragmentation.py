"""The defragmentation plan of one pool: the pool's placement, and the plan as a document."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from analyzers.fragmentation.cluster_state import ClusterState
from analyzers.fragmentation.inventory import GpuNode
from analyzers.fragmentation.movable import MoveTerms, decide_terms
from analyzers.fragmentation.placement import (
    FreeSlot,
    MovePlan,
    NodeSpace,
    PlacedPod,
    PoolPlacement,
)
from analyzers.fragmentation.rows import NodePod
from fallow.fragmentation import Integers
from fallow.selectors import LabelSelector, match_selector

MIB = 2**20
ANY = "*"
"""Namespaces of a term with its own namespace selector: any may match."""
MOST_CPU = 10_000_000
"""Replaces unknown free CPU and memory where numbers must stay small."""


def build_placement(
    state: ClusterState,
    rows: Sequence[int],
    slot: FreeSlot,
    also: Sequence[str],
    targets: Collection[int] = (),
) -> PoolPlacement:
    """Return the open nodes of `rows`, of one pool or of several, with the pods on them.

    `targets`: those of them to which pods may move, and on which no slot is freed.
    """
    open_rows = [n for n in rows if state.nodes[n].open]
    place_of = {state.nodes[n].name: k for k, n in enumerate(open_rows)}
    spot = {d: k for n in open_rows for k, d in enumerate(state.devices[n])}
    all_terms = _decide_all_terms(state, also)
    # A gang with pods on other nodes does not move.
    outside = {all_terms[p.uid].group for p in state.pods if p.node not in place_of} - {""}
    tenants, budgets = [], dict[str, int]()
    for pod in state.pods:
        if pod.node not in place_of:
            continue
        terms = all_terms[pod.uid]
        if terms.budget:
            budgets[terms.budget] = terms.allowed
        named = [(spot[d], round(1000 * share)) for d, share in pod.named_devices if d in spot]
        stays = _explain_stay(pod, terms, outside, named=bool(named))
        tenants.append(_build_tenant(pod, place_of[pod.node], named, terms, stays))
    spaces = [_build_space(state, n, target_only=n in targets) for n in open_rows]
    return PoolPlacement(spaces, tenants, slot, budgets)


def _build_space(state: ClusterState, n: int, *, target_only: bool) -> NodeSpace:
    """Return what is free on a node at the last time."""
    node = state.nodes[n]
    return NodeSpace(
        node.name,
        min(int(state.cpu[-1][n]), MOST_CPU),
        min(int(state.memory[-1][n]) // MIB, MOST_CPU),
        tuple(int(m) for m in state.gpu[-1][n][: len(state.devices[n])]),
        _name_sort(node),
        node.zone,
        node.taints,
        node.labels or {},
        target_only=target_only,
    )


def _explain_stay(pod: NodePod, terms: MoveTerms, outside: Collection[str], *, named: bool) -> str:
    """Return why a pod may not move; empty = it may. `outside`: gangs that are on other nodes."""
    if terms.stays:
        return terms.stays
    if pod.gpus and not named:
        return "its devices are not named"
    if terms.group in outside:
        return "pods of its gang are on other nodes"
    return ""


def _build_tenant(
    pod: NodePod,
    place: int,
    devices: Sequence[tuple[int, int]],
    terms: MoveTerms,
    stays: str,
) -> PlacedPod:
    return PlacedPod(
        pod.uid,
        f"{pod.namespace}/{pod.pod}",
        place,
        tuple(devices),
        pod.cpu_milli,
        -(-pod.memory_bytes // MIB),
        terms.group,
        terms.budget,
        stays,
        terms.zonal,
        terms.requirements,
    )


def _decide_all_terms(state: ClusterState, also: Sequence[str]) -> dict[str, MoveTerms]:
    """Return the terms on which each pod may move; one that others must be apart from stays."""
    shunned = _find_separations(state.pods)
    all_terms = {}
    for pod in state.pods:
        covering = state.budgets.of(state.cluster, pod.namespace or "", pod.labels)
        on = decide_terms(pod, also, covering)
        if not on.stays and shunned and _is_separated(shunned, pod):
            on = msgspec.structs.replace(on, stays="other pods must stand apart from it")
        all_terms[pod.uid] = on
    return all_terms


def _find_separations(pods: Sequence[NodePod]) -> dict[str, list[LabelSelector | None]]:
    """Return by namespace which pods must be apart: the rule holds in both directions."""
    separations: dict[str, dict[str, LabelSelector | None]] = {}
    for pod in pods:
        for term in pod.apart:
            for namespace in term.namespaces or [pod.namespace or ""]:
                separations.setdefault(namespace, {})[repr(term.selector)] = term.selector
    return {namespace: list(terms.values()) for namespace, terms in separations.items()}


def _is_separated(shunned: Mapping[str, Sequence[LabelSelector | None]], pod: NodePod) -> bool:
    there = [*shunned.get(pod.namespace or "", ()), *shunned.get(ANY, ())]
    labels = pod.label_values if there else {}
    return any(match_selector(selector, labels) for selector in there)


def describe_plan(on: PoolPlacement, plan: MovePlan | None, wanted: int) -> dict[str, Any]:
    """Return a plan as a document for findings; without a plan, what prevents it."""
    slot = msgspec.to_builtins(on.slot)
    stay = Counter(t.stays.partition(":")[0] for t in on.tenants if t.stays and t.devices)
    document: dict[str, Any] = {
        "slot": {name: value for name, value in slot.items() if value},
        "slots_now": sum(on.slots(n) for n in range(len(on.places))),
        "slots_wanted": wanted,
        "pods_that_may_move": len(on.movable()),
        "pods_that_stay": dict(sorted(stay.items())),
    }
    if plan is None:
        return {**document, "slots_freed": 0, "moves": [], "why": "no plan was found"}
    pods = {t.uid: t for t in on.tenants}
    return {
        **document,
        "slots_freed": len(plan.slots),
        "on_nodes": [on.places[n].name for n in plan.slots],
        "restarts": plan.restarts,
        "fewest_possible": plan.fewest,
        "proven_fewest": plan.proven,
        "moves": [
            {
                "pod": pods[move.uid].name,
                "gpus": round(sum(m for _, m in pods[move.uid].devices) / 1000, 3),
                "from": on.places[move.source].name,
                "to": on.places[move.target].name,
                "devices": list(move.devices),
            }
            for move in plan.moves
        ],
    }


def apply_plan(on: PoolPlacement, plan: MovePlan) -> tuple[Integers, Integers]:
    """Return free milli-CPU [place] and milli-GPU [place, device] after the plan."""
    width = max(len(place.gpu) for place in on.places)
    gpu = np.zeros((len(on.places), width), np.int64)
    for k, place in enumerate(on.places):
        gpu[k, : len(place.gpu)] = place.gpu
    cpu = np.array([place.cpu_milli for place in on.places], np.int64)
    pods = {t.uid: t for t in on.tenants}
    for move in plan.moves:
        pod = pods[move.uid]
        for device, milli in pod.devices:
            gpu[pod.place, device] += milli
        for device in move.devices:
            gpu[move.target, device] -= pod.milli
        cpu[pod.place] += pod.cpu_milli
        cpu[move.target] -= pod.cpu_milli
    return cpu, gpu


def _name_sort(node: GpuNode) -> str:
    """Return the type of a node.

    Pods may depend on the type, so they move only to nodes of the same type.
    """
    return f"{node.model}|{node.instance_type}|{node.capacity_type}"
