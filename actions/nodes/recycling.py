"""Take a sick node out of service: cordon it, and drain it where the policy permits that.

Pods are evicted through the Eviction API, which respects disruption budgets. Pods that belong to
the node (DaemonSets, static pods) stay. The empty node is left to its autoscaler or its operator:
nothing is deleted.
"""

from typing import ClassVar

from actions.cluster.allocations import CLAIMS
from actions.cluster.protections import find_protections
from actions.cluster.workload_pods import list_node_pods
from actions.reclaim.subjects import to_freed_pods
from actions.reclaim.writes import join_writes, set_field
from fallow.action_models import Change, Decision, Intent
from fallow.errors import RefusedError
from fallow.kube.objects import (
    Object,
    find_controller,
    get_annotations,
    get_labels,
    get_namespace,
    get_path,
    get_uid,
    is_deleting,
    name,
    to_target,
)
from fallow.protocols import ClusterReader, Right
from fallow.stored_annotations import MIRROR

REASON = "/metadata/annotations/fallow.dev~1recycle"
CORDON = "/spec/unschedulable"
CONTROL = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")
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

    def writes(self, decision: Decision, cluster: ClusterReader) -> Intent:
        """Return the cordon, then the evictions; the undo makes the node schedulable again.

        Raises:
            RefusedError: it is gone, another, of the control plane, cordoned by somebody else, or
                has pods that must not be evicted.
            TemporaryError: the API does not answer.
        """
        node, path = read_node(decision, cluster)
        node_target = to_target(node, cluster.name, "Node", "v1")
        if get_path(node, "spec", "unschedulable"):
            raise RefusedError(f"Node/{node_target.name} is cordoned by somebody already")
        reason = str(decision.parameters.get("why") or decision.verb)
        # One write: the node-lifecycle controller adds its taint as soon as it sees the cordon.
        cordon = join_writes(
            set_field(node, node_target, path, CORDON, value=True),
            set_field(node, node_target, path, REASON, reason),
        )
        moving = (
            _list_pods_to_evict(node, cluster) if "drain" in _get_capabilities(decision) else ()
        )
        return Intent(
            target=node_target,
            capability="drain" if moving else "cordon",
            changes=(cordon.change, *(_evict(p, cluster) for p in moving)),
            undo=(cordon.undo,),
            frees=to_freed_pods(moving, cluster),
            lost=_describe_loss(moving),
            notes=("an empty node is its autoscaler's to take away, or its operator's to repair",),
        )


def read_node(decision: Decision, cluster: ClusterReader) -> tuple[Object, str]:
    """Return the node of a decision in its current state, and its path.

    Raises:
        RefusedError: it is gone, another by now, or of the control plane.
    """
    cluster_name, _, _, node_name = decision.subject
    if cluster_name != cluster.name:
        raise RefusedError(f"Node/{node_name} is in cluster {cluster_name}, not {cluster.name}")
    path = f"/api/v1/nodes/{node_name}"
    node = cluster.get(path)
    if node is None or is_deleting(node):
        raise RefusedError(f"Node/{node_name} is gone")
    if decision.uid and get_uid(node) != decision.uid:
        raise RefusedError(
            f"Node/{node_name} is another node of that name: its uid is {get_uid(node)}"
        )
    if any(label in get_labels(node) for label in CONTROL):
        raise RefusedError(f"Node/{node_name} is of the control plane")
    return node, path


def _list_pods_to_evict(node: Object, cluster: ClusterReader) -> tuple[Object, ...]:
    """Return the pods to evict.

    Raises:
        RefusedError: a pod is protected, or no controller would start it again.
    """
    evicted = []
    for pod in list_node_pods(name(node), cluster):
        owner = find_controller(pod)
        if MIRROR in get_annotations(pod) or (owner and owner.get("kind") in FOR_NODES):
            continue
        pod_text = f"pod {get_namespace(pod)}/{name(pod)} on {name(node)}"
        if owner is None:
            raise RefusedError(
                f"{pod_text} has no controller: nothing would start it again",
                hint="move it by hand; the policy may cordon without draining",
            )
        if why := find_protections([pod], cluster.get(f"/api/v1/namespaces/{get_namespace(pod)}")):
            raise RefusedError(f"{pod_text} must not be evicted: {why[0].text}")
        evicted.append(pod)
    return tuple(evicted)


def _evict(pod: Object, cluster: ClusterReader) -> Change:
    """Return one eviction without a precondition.

    A failed one would use up the disruption budget.
    """
    path = f"/api/v1/namespaces/{get_namespace(pod)}/pods/{name(pod)}"
    return Change(
        to_target(pod, cluster.name, "Pod", "v1"),
        "POST",
        f"{path}/eviction",
        {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name(pod), "namespace": get_namespace(pod)},
        },
        content_type=JSON,
        read=path,
        was={"/metadata/uid": get_uid(pod)},
        becomes={"/metadata/uid": None},
        guarded=False,
    )


def _get_capabilities(decision: Decision) -> set[str]:
    return {decision.verb, *decision.parameters.get("capabilities", ())}


def _describe_loss(moving: tuple[Object, ...]) -> str:
    if not moving:
        return ""
    empty_dirs = [
        v for p in moving for v in get_path(p, "spec", "volumes") or () if "emptyDir" in v
    ]
    text = f"memory of {len(moving)} pods since their last checkpoint"
    return f"{text}, and {len(empty_dirs)} emptyDir volumes" if empty_dirs else text
