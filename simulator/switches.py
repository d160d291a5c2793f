"""Tell whether workloads of each kind are switched off, and how their owners switch them on.

The merge patches are those that people write (`kubectl patch`, the notebook page's button).
"""

from typing import Any

from fallow.kube.objects import get_annotations, get_path
from simulator.arrivals import Category
from simulator.cluster.objects import build_nested_patch

Object = dict[str, Any]

NOTEBOOK, SERVICE = "kubeflow-resource-stopped", "serving.kserve.io/stop"
SUSPEND = {
    "Job": ("spec", "suspend"),
    "PyTorchJob": ("spec", "runPolicy", "suspend"),
    "RayCluster": ("spec", "suspend"),
}


def build_on_patch(category: Category) -> Object:
    """Return the merge patch with which its owner starts a workload again."""
    kind = category.kind
    if kind in SUSPEND:
        return build_nested_patch(False, *SUSPEND[kind])
    if kind == "Notebook":
        return {"metadata": {"annotations": {NOTEBOOK: None}}}
    if kind == "InferenceService":
        return {"metadata": {"annotations": {SERVICE: "false"}}}
    return {"spec": {"replicas": category.replicas}}


def is_off(obj: Object) -> bool:
    """Return whether a workload is switched off."""
    kind = obj["kind"]
    if kind in SUSPEND:
        return bool(get_path(obj, *SUSPEND[kind]))
    if kind == "Notebook":
        return bool(get_annotations(obj).get(NOTEBOOK))
    if kind == "InferenceService":
        return get_annotations(obj).get(SERVICE) == "true"
    return bool(get_path(obj, "spec", "replicas", default=1) == 0)
