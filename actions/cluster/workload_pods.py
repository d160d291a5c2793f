"""List all pods of an object, including pods without GPUs and pending pods."""

from collections.abc import Sequence
from fractions import Fraction

from actions.cluster.owner_chains import OwnerChainReader
from fallow.action_models import Target
from fallow.kube.gpu_resources import COUNTED, find_gpu_resource
from fallow.kube.objects import Object, find_controller, get_metadata, get_uid, group, has_ended
from fallow.kube.owner_chains import UnknownOwner
from fallow.kube.owner_links import read_owner_links
from fallow.kube.pod_requests import sum_pod_amounts
from fallow.protocols import ClusterReader


def list_workload_pods(target: Target, cluster: ClusterReader) -> Sequence[Object]:
    """Return the pods whose owners, or whose controller labels, lead to the object.

    Raises:
        RefusedError: pods may not be listed.
        TemporaryError: no answer.
    """
    path = cluster.collection("Pod", "", target.namespace)
    if path is None:
        return ()
    pods = [{"apiVersion": "v1", "kind": "Pod", **p} for p in cluster.items(path)]
    if target.kind == "Pod":
        return [p for p in pods if get_uid(p) == target.uid]
    climber = OwnerChainReader(cluster)
    return [p for p in pods if _is_linked(p, target) or _is_owned(p, target, climber)]


def list_node_pods(node: str, cluster: ClusterReader) -> list[Object]:
    """Return the pods of a node that have not ended."""
    path = cluster.collection("Pod", "")
    pods = cluster.items(path, fields=f"spec.nodeName={node}") if path else ()
    return [p for p in pods if not has_ended(p)]


def _is_linked(pod: Object, target: Target) -> bool:
    metadata = get_metadata(pod)
    marks = (metadata.get("labels") or {}, metadata.get("annotations") or {})
    return any(
        j.kind == target.kind and j.group == group(target.api_version) and j.end(*marks) == name
        for j in read_owner_links()
        for name in (target.name,)
    )


def _is_owned(pod: Object, target: Target, climber: OwnerChainReader) -> bool:
    reference = find_controller(pod)
    if reference is None:
        return False
    if reference.get("uid") == target.uid:
        return True
    chain = climber.chain(pod, jump=False)
    return not isinstance(chain, UnknownOwner) and any(get_uid(o) == target.uid for o in chain[1:])


def count_requested_gpus(pod: Object) -> float:
    """Return how many GPUs a pod reserves; a MIG instance counts as its share of a GPU.

    Devices of a resource claim are not counted: the result is then 0, though the pod may hold some.
    """
    total = Fraction(0)
    for name, amount in sum_pod_amounts(pod.get("spec") or {}).items():
        resource = find_gpu_resource(name)
        if resource is not None and resource.form in COUNTED:
            total += amount * resource.share
    return float(total)
