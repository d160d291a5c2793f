"""Decide which nodes a pod may use at all: labels, GPU models, taints."""

from simulator.cluster.scheduler.requests import NodeFree, NodeTaint, PodRequest, PodToleration

_REPELS = ("NoSchedule", "NoExecute")


def is_eligible(request: PodRequest, node: NodeFree) -> bool:
    """Return whether the node has the labels and the model, and no taint that forbids the pod."""
    if request.gpu_models and node.gpu_model not in request.gpu_models:
        return False
    if any(node.labels.get(key) != value for key, value in request.selector):
        return False
    if any(node.labels.get(key) == value for key, value in request.excluded):
        return False
    return not any(
        taint.effect in _REPELS and not _is_tolerated(taint, request) for taint in node.taints
    )


def is_welcome(request: PodRequest, node: NodeFree) -> bool:
    """Return whether no PreferNoSchedule taint makes the node a second choice."""
    return not any(
        taint.effect == "PreferNoSchedule" and not _is_tolerated(taint, request)
        for taint in node.taints
    )


def _is_tolerated(taint: NodeTaint, request: PodRequest) -> bool:
    return any(_is_tolerating(toleration, taint) for toleration in request.tolerations)


def _is_tolerating(toleration: PodToleration, taint: NodeTaint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.operator == "Exists":
        return toleration.key in {"", taint.key}
    return toleration.key == taint.key and toleration.value == taint.value
