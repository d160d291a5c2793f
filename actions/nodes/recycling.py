"""Take a sick node out of service: cordon it, and where a policy asks for it, drain it.

Pods go through the Eviction API, which heeds disruption budgets; what runs for its node
(DaemonSets, static pods) stays. The empty node is left to its autoscaler or its operator: nothing
is deleted.
"""

from typing import ClassVar

from actions.cluster.allocations import CLAIMS
from actions.cluster.members import pods_on
from actions.cluster.objects import (
    Object,
    annotations,
    controller,
    deep,
    going,
    labels,
    name,
    namespace,
    target,
    uid,
)
from actions.cluster.protections import protected
from actions.reclaim.subjects import freed
from actions.reclaim.writes import field, joined
from fallow.acting import Change, Decision, Intent
from fallow.errors import RefusedError
from fallow.seams import Cluster, Right

WHY = "/metadata/annotations/fallow.dev~1recycle"
CORDON = "/spec/unschedulable"
CONTROL = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")
MIRROR = "kubernetes.io/config.mirror"
FOR_NODES = frozenset({"DaemonSet", "Node"})
JSON = "application/json"


class RecycleExecutor:
    """Cordon a node; with the capability `drain`, evict its pods too."""

    kinds: ClassVar[frozenset[str]] = frozenset({"Node"})
    capabilities: ClassVar[frozenset[str]] = frozenset({"cordon", "drain"})
    verbs: ClassVar[frozenset[str]] = frozenset({"recycle node"})
    rights: ClassVar[tuple[Right, ...]] = (
        Right("", "nodes", ("get", "patch")),
        Right("", "pods", ("get", "list")),
        Right("", "namespaces", ("get",)),
        Right("", "pods/eviction", ("create",)),
        CLAIMS,
    )

    def intend(self, decision: Decision, cluster: Cluster) -> Intent:
        """Return the cordon, then the evictions; the undo lets pods onto the node again.

        Raises:
            RefusedError: it is gone, another, of the control plane, cordoned by somebody else, or
                holds pods that must not be evicted.
            TemporaryError: the API does not answer.
        """
        node, path = read(decision, cluster)
        told = target(node, cluster.name, "Node", "v1")
        if deep(node, "spec", "unschedulable"):
            raise RefusedError(f"Node/{told.name} is cordoned by somebody already")
        reason = str(decision.parameters.get("why") or decision.verb)
        # One write: the node-lifecycle controller adds its taint as soon as it sees the cordon.
        cordon = joined(
            field(node, told, path, CORDON, value=True), field(node, told, path, WHY, reason)
        )
        moving = _moving(node, cluster) if "drain" in _asked(decision) else ()
        return Intent(
            target=told,
            capability="drain" if moving else "cordon",
            changes=(cordon.change, *(_evict(p, cluster) for p in moving)),
            undo=(cordon.undo,),
            frees=freed(moving, cluster),
            lost=_lost(moving),
            notes=("an empty node is its autoscaler's to take away, or its operator's to repair",),
        )


def read(decision: Decision, cluster: Cluster) -> tuple[Object, str]:
    """Return a decision's node as it is now, and its path.

    Raises:
        RefusedError: it is gone, another by now, or of the control plane.
    """
    of, _, _, called = decision.subject
    if of != cluster.name:
        raise RefusedError(f"Node/{called} is in cluster {of}, not {cluster.name}")
    path = f"/api/v1/nodes/{called}"
    node = cluster.get(path)
    if node is None or going(node):
        raise RefusedError(f"Node/{called} is gone")
    if decision.uid and uid(node) != decision.uid:
        raise RefusedError(f"Node/{called} is another node of that name: its uid is {uid(node)}")
    if any(word in labels(node) for word in CONTROL):
        raise RefusedError(f"Node/{called} is of the control plane")
    return node, path


def _moving(node: Object, cluster: Cluster) -> tuple[Object, ...]:
    """Return the pods to evict.

    Raises:
        RefusedError: a pod is protected, or nothing would start it again.
    """
    moving = []
    for pod in pods_on(name(node), cluster):
        owner = controller(pod)
        if MIRROR in annotations(pod) or (owner and owner.get("kind") in FOR_NODES):
            continue
        shown = f"pod {namespace(pod)}/{name(pod)} on {name(node)}"
        if owner is None:
            raise RefusedError(
                f"{shown} has no controller: nothing would start it again",
                hint="move it by hand; the policy may cordon without draining",
            )
        if why := protected([pod], cluster.get(f"/api/v1/namespaces/{namespace(pod)}")):
            raise RefusedError(f"{shown} must not be evicted: {why[0].text}")
        moving.append(pod)
    return tuple(moving)


def _evict(pod: Object, cluster: Cluster) -> Change:
    """Return one eviction, without a precondition: one that fails would use up the budget."""
    path = f"/api/v1/namespaces/{namespace(pod)}/pods/{name(pod)}"
    return Change(
        target(pod, cluster.name, "Pod", "v1"),
        "POST",
        f"{path}/eviction",
        {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name(pod), "namespace": namespace(pod)},
        },
        content_type=JSON,
        read=path,
        was={"/metadata/uid": uid(pod)},
        becomes={"/metadata/uid": None},
        guarded=False,
    )


def _asked(decision: Decision) -> set[str]:
    return {decision.verb, *decision.parameters.get("capabilities", ())}


def _lost(moving: tuple[Object, ...]) -> str:
    if not moving:
        return ""
    kept = [v for p in moving for v in deep(p, "spec", "volumes") or () if "emptyDir" in v]
    said = f"memory of {len(moving)} pods since their last checkpoint"
    return f"{said}, and {len(kept)} emptyDir volumes" if kept else said
