"""All pods of an object, those without GPUs and those that still wait included."""

from collections.abc import Sequence

from actions.cluster.climbing import Climber, Unknown
from actions.cluster.objects import Object, controller, deep, ended, group, meta, uid
from fallow.acting import Target
from fallow.kube.gpu_resources import COUNTED, MIG_SLICES, gpu_resource
from fallow.kube.owner_jumps import jumps
from fallow.kube.quantities import quantity
from fallow.seams import Cluster

SIDECAR = "Always"


def members(target: Target, cluster: Cluster) -> Sequence[Object]:
    """Return the pods whose owners, or whose jump of labels, lead to the object.

    Raises:
        RefusedError: pods may not be listed.
        TemporaryError: no answer.
    """
    path = cluster.collection("Pod", "", target.namespace)
    if path is None:
        return ()
    pods = [{"apiVersion": "v1", "kind": "Pod", **p} for p in cluster.items(path)]
    if target.kind == "Pod":
        return [p for p in pods if uid(p) == target.uid]
    climber = Climber(cluster)
    return [p for p in pods if _named(p, target) or _owned(p, target, climber)]


def pods_on(node: str, cluster: Cluster) -> list[Object]:
    """Return the pods of a node that have not ended."""
    path = cluster.collection("Pod", "")
    found = cluster.items(path, fields=f"spec.nodeName={node}") if path else ()
    return [p for p in found if not ended(p)]


def _named(pod: Object, target: Target) -> bool:
    head = meta(pod)
    words = (head.get("labels") or {}, head.get("annotations") or {})
    return any(
        j.kind == target.kind and j.group == group(target.api_version) and j.end(*words) == name
        for j in jumps()
        for name in (target.name,)
    )


def _owned(pod: Object, target: Target, climber: Climber) -> bool:
    reference = controller(pod)
    if reference is None:
        return False
    if reference.get("uid") == target.uid:
        return True
    chain = climber.chain(pod, jump=False)
    return not isinstance(chain, Unknown) and any(uid(o) == target.uid for o in chain[1:])


def gpus(pod: Object) -> float:
    """Return how many GPUs a pod asks for, MIG instances as their share of a board.

    Devices of a resource claim are not counted: 0 then, though the pod may hold some.
    """
    spec = pod.get("spec") or {}
    running = [
        *(spec.get("containers") or ()),
        *(c for c in spec.get("initContainers") or () if c.get("restartPolicy") == SIDECAR),
    ]
    total = 0.0
    for container in running:
        for name, text in (deep(container, "resources", "limits") or {}).items():
            known = gpu_resource(name)
            if known is not None and known.form in COUNTED:
                share = known.slices / MIG_SLICES if known.slices else 1.0
                total += float(quantity(text) or 0) * share
    return total
