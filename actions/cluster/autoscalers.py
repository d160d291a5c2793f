"""Find the autoscalers of an object: HorizontalPodAutoscalers and KEDA's ScaledObjects."""

from fallow.kube.objects import (
    Object,
    find_controller,
    get_annotations,
    get_namespace,
    get_path,
    group,
    name,
)
from fallow.protocols import ClusterReader

HPA, KEDA_OBJECT = "HorizontalPodAutoscaler", "ScaledObject"
PAUSED_REPLICAS = "autoscaling.keda.sh/paused-replicas"
PAUSED = "autoscaling.keda.sh/paused"
_GROUPS = {HPA: "autoscaling", KEDA_OBJECT: "keda.sh"}


def find_autoscalers(obj: Object, cluster: ClusterReader) -> list[Object]:
    """Return the autoscalers that target an object; the HPA that KEDA creates is not counted again.

    Raises:
        RefusedError: the autoscalers may not be read, so the answer is unknown.
        TemporaryError: the API does not answer.
    """
    scalers: list[Object] = []
    for kind, of_group in _GROUPS.items():
        path = cluster.collection(kind, of_group, get_namespace(obj))
        if path is None:
            continue
        version = path.split("/")[3]
        for item in cluster.items(path):
            scaler = {"apiVersion": f"{of_group}/{version}", "kind": kind, **item}
            if (
                _is_scaling(scaler, obj)
                and (find_controller(scaler) or {}).get("kind") != KEDA_OBJECT
            ):
                scalers.append(scaler)
    return scalers


def _is_scaling(scaler: Object, obj: Object) -> bool:
    reference = get_path(scaler, "spec", "scaleTargetRef") or {}
    kind = reference.get("kind") or "Deployment"
    api_group = group(str(reference.get("apiVersion") or obj.get("apiVersion") or ""))
    return (kind, reference.get("name"), api_group) == (
        obj.get("kind"),
        name(obj),
        group(str(obj.get("apiVersion") or "")),
    )


def get_paused_replicas(scaler: Object) -> str | None:
    """Return the number of replicas at which KEDA was paused, or None."""
    return get_annotations(scaler).get(PAUSED_REPLICAS)
