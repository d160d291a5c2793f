"""Who scales an object: HorizontalPodAutoscalers and KEDA's ScaledObjects."""

from actions.cluster.objects import Object, annotations, controller, deep, group, name, namespace
from fallow.seams import Cluster

HPA, KEDA_OBJECT = "HorizontalPodAutoscaler", "ScaledObject"
PAUSED_REPLICAS = "autoscaling.keda.sh/paused-replicas"
PAUSED = "autoscaling.keda.sh/paused"
_GROUPS = {HPA: "autoscaling", KEDA_OBJECT: "keda.sh"}


def of(obj: Object, cluster: Cluster) -> list[Object]:
    """Return the autoscalers whose target an object is; KEDA's own HPA is not counted twice.

    Raises:
        RefusedError: they may not be read, so nobody knows.
        TemporaryError: the API does not answer.
    """
    found: list[Object] = []
    for kind, of_group in _GROUPS.items():
        path = cluster.collection(kind, of_group, namespace(obj))
        if path is None:
            continue
        version = path.split("/")[3]
        for item in cluster.items(path):
            named = {"apiVersion": f"{of_group}/{version}", "kind": kind, **item}
            if _scales(named, obj) and (controller(named) or {}).get("kind") != KEDA_OBJECT:
                found.append(named)
    return found


def _scales(scaler: Object, obj: Object) -> bool:
    reference = deep(scaler, "spec", "scaleTargetRef") or {}
    kind = reference.get("kind") or "Deployment"
    of = group(str(reference.get("apiVersion") or obj.get("apiVersion") or ""))
    return (kind, reference.get("name"), of) == (
        obj.get("kind"),
        name(obj),
        group(str(obj.get("apiVersion") or "")),
    )


def paused_at(scaler: Object) -> str | None:
    """Return the replicas at which somebody paused KEDA, or None."""
    return annotations(scaler).get(PAUSED_REPLICAS)
