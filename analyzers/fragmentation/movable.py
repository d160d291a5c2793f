"""Decide which pods may move, and which move together: by owner, annotations, volumes, budgets."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from analyzers.fragmentation.rows import MovableKind, NodePod, read_movable_kinds
from analyzers.protections import read_vetoes
from capacity.placement.pod_rules import RULES
from fallow.node_requirements import NodeRequirements, read_requirements
from fallow.stored_annotations import CLAIMS, LOCAL_VOLUMES, MIRROR
from warehouse.disruption_budgets import DisruptionBudget

SAFE = "cluster-autoscaler.kubernetes.io/safe-to-evict"
GROUPS = ("scheduling.k8s.io/group-name", "pod-group-name")
"""Annotations that name the gang of a pod: Volcano's, KAI's."""


class MoveTerms(msgspec.Struct, frozen=True):
    """The conditions under which a pod may move."""

    stays: str = ""
    """Why it may not move; empty = it may."""
    group: str = ""
    zonal: bool = False
    requirements: NodeRequirements = NodeRequirements()
    budget: str = ""
    allowed: int = 0


def decide_terms(
    pod: NodePod, also: Collection[str] = (), covering: Sequence[DisruptionBudget] = ()
) -> MoveTerms:
    """Return the conditions under which a pod may move.

    `also` are kinds of owners that the site lets move although `movable_kinds.csv` does not;
    `covering` the disruption budgets over the pod.
    """
    words = pod.notes
    kind = pod.workload_kind or ""
    movable_kind = read_movable_kinds().get(kind)
    gang = next((words[name] for name in GROUPS if words.get(name)), None)
    group = ""
    if gang is not None:
        group = f"{pod.namespace}/{gang}"
    elif movable_kind is not None and movable_kind.together:
        group = f"{pod.namespace}/{kind}/{pod.workload}"
    budget = covering[0] if covering else None
    stays = _explain_stay(pod, words, movable_kind, also)
    if not stays and len(covering) > 1:
        stays = "several disruption budgets cover it: evictions are refused"
    elif not stays and budget is not None and budget.allowed < 1:
        stays = "its disruption budget allows no eviction now"
    return MoveTerms(
        stays,
        group,
        bool(words.get(CLAIMS)),
        read_requirements(words),
        budget.id if budget else "",
        budget.allowed if budget else 0,
    )


def _explain_stay(
    pod: NodePod,
    words: Mapping[str, Any],
    movable_kind: MovableKind | None,
    also: Collection[str],
) -> str:
    kind, rules = pod.workload_kind, pod.rules
    reasons = (
        (any(read_vetoes(pod.annotations, pod.labels)), "an annotation protects it"),
        (MIRROR in words or pod.owner_kind in {"DaemonSet", "Node"}, "it belongs to its node"),
        (kind is None, "its owner could not be resolved"),
        (
            words.get(LOCAL_VOLUMES) and str(words.get(SAFE)).lower() != "true",
            "it keeps data on its node",
        ),
        *((name in rules, why) for name, why in RULES.items()),
        (kind not in also and movable_kind is None, f"{kind}: nothing is known of how it restarts"),
        (
            kind not in also and movable_kind is not None and not movable_kind.moves,
            f"{kind}: {_explain_kind(movable_kind)}",
        ),
    )
    return next((why for holds, why in reasons if holds), "")


def _explain_kind(movable_kind: MovableKind | None) -> str:
    return movable_kind.why if movable_kind else ""
