"""Build the API objects of arrivals: one object per arrival, as its owner writes it.

Pods require a GPU product by node label, so that whole GPUs, instances and shared GPUs each run on
their own nodes. Sizes are the medians of a published cluster's pods (`shapes.csv`).
"""

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from fallow.errors import UsageError
from fallow.resources import read_table
from simulator.arrivals import Arrival, Category
from simulator.work.plans import read_behaviours

Object = dict[str, Any]

PRODUCT = "nvidia.com/gpu.product"
GPU_TAINT = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
IMAGES = {
    "training": "registry.example/pytorch:2.9",
    "night": "registry.example/scoring:7",
    "serving": "registry.example/vllm-openai:0.12",
    "notebook": "registry.example/jupyter-pytorch:2025b",
}
"""Image by family of behaviours (`simulator/work/behaviours.csv`)."""
HOME = "/home/jovyan"
"""Where a notebook's image keeps its user's files."""
LEVEL = "e2e<=10s@95%, ttft<=1s@95%"
FAMILY, ALIKE = "base-model", {"train", "train-wide", "pretrain"}
"""One model, trained on one GPU, on four and on sixteen."""
RETRIES = 100
"""Jobs here restart after every interruption, as jobs with checkpoints do."""
PREEMPTS_FROM = 200
"""Priority from which pods may preempt others: only production has it."""


def build_base_objects(mix: Iterable[Category]) -> list[Object]:
    """Return the objects that must exist first: namespaces with teams, and priority classes."""
    categories = list(mix)
    spaces = {c.namespace: c.team for c in categories}
    objects: list[Object] = [
        {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": space, "labels": {"team": team}},
        }
        for space, team in sorted(spaces.items())
    ]
    classes: list[Object] = [
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": _choose_priority(value)},
            "value": value,
            "preemptionPolicy": _choose_preemption(value),
        }
        for value in sorted({c.priority for c in categories})
    ]
    return [*objects, *classes]


def build_manifest(arrival: Arrival) -> Object:
    """Return the object that its owner creates.

    Raises:
        UsageError: this module has no template for the kind.
    """
    kind = arrival.category.kind
    write = _KINDS.get(kind)
    if write is None:
        raise UsageError(f"no template makes a {kind!r}", hint=f"kinds: {', '.join(_KINDS)}")
    return write(arrival)


@cache
def compute_pod_size(gpus: int, weight: float = 1.0) -> tuple[int, int]:
    """Return the millicores and MiB of a pod with so many GPUs, or instances of such a weight."""
    rows = _read_shapes()
    if gpus in rows and (weight == 1 or not gpus):
        return rows[gpus]
    cpu, memory = rows[1]
    return int(cpu * gpus * weight), int(memory * gpus * weight)


@cache
def _read_shapes() -> Mapping[int, tuple[int, int]]:
    rows = read_table("simulator", "shapes.csv")
    return {int(r["gpus"]): (int(r["cpu_milli"]), int(r["memory_mib"])) for r in rows}


def _choose_priority(value: int) -> str:
    return f"priority-{value}"


def _choose_preemption(value: int) -> str:
    return "PreemptLowerPriority" if value >= PREEMPTS_FROM else "Never"


def _build_metadata(arrival: Arrival) -> Object:
    category = arrival.category
    return {
        "name": arrival.name,
        "namespace": category.namespace,
        "labels": {"team": category.team, "app.kubernetes.io/name": category.category},
    }


def _build_pod(arrival: Arrival, container: str, gpus: int | None = None, **more: Any) -> Object:
    """Return the spec of a pod with so many GPUs; by default the category's."""
    category = arrival.category
    count = category.gpus if gpus is None else gpus
    cpu, memory = compute_pod_size(count, category.weight)
    requests = {"cpu": f"{cpu}m", "memory": f"{memory}Mi"}
    if count:
        requests[category.resource] = str(count)
    image = IMAGES[read_behaviours()[category.behaviour].family]
    if category.claim:
        claim = {"claimName": category.claim}
        more = {**more, "volumes": [{"name": "data", "persistentVolumeClaim": claim}]}
    return {
        "priorityClassName": _choose_priority(category.priority),
        "preemptionPolicy": _choose_preemption(category.priority),
        "nodeSelector": {PRODUCT: category.product} if category.product else {},
        "containers": [
            {
                "name": container,
                "image": image,
                "resources": {"requests": requests, "limits": dict(requests)},
            }
        ],
        **more,
    }


def _build_template(arrival: Arrival, container: str, **more: Any) -> Object:
    meta: Object = {"labels": {"app": arrival.name}}
    annotations = _build_annotations(arrival)
    if annotations:
        meta["annotations"] = annotations
    return {"metadata": meta, "spec": _build_pod(arrival, container, **more)}


def _build_annotations(arrival: Arrival) -> dict[str, str]:
    """Return the owner's annotations: a service level, which jobs are alike, the category's own."""
    category, own = arrival.category, dict(arrival.category.annotations)
    if read_behaviours()[category.behaviour].family == "serving":
        return {"fallow.dev/slo": LEVEL, **own}
    return {"fallow.dev/family": FAMILY, **own} if category.category in ALIKE else own


def _build_notebook(arrival: Arrival) -> Object:
    spec = _build_pod(arrival, "notebook")
    if arrival.on_volume:
        claim = {"claimName": f"{arrival.name}-home"}
        spec["volumes"] = [{"name": "home", "persistentVolumeClaim": claim}]
        spec["containers"][0]["volumeMounts"] = [{"name": "home", "mountPath": HOME}]
    template = {"spec": spec}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "Notebook",
        "metadata": _build_metadata(arrival),
        "spec": {"template": template},
    }


def _build_job(arrival: Arrival) -> Object:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": _build_metadata(arrival),
        "spec": {
            "backoffLimit": RETRIES,
            "ttlSecondsAfterFinished": 3600,
            "template": _build_template(arrival, "main", restartPolicy="Never"),
        },
    }


def _build_pytorch_job(arrival: Arrival) -> Object:
    template = _build_template(arrival, "pytorch")
    if arrival.category.replicas > 1:
        # Ranks of one job are placed together or not at all.
        gang = {"scheduling.k8s.io/group-name": arrival.name}
        template["metadata"]["annotations"] = {**_build_annotations(arrival), **gang}
    roles: Object = {"Master": {"replicas": 1, "restartPolicy": "Never", "template": template}}
    if arrival.category.replicas > 1:
        roles["Worker"] = {**roles["Master"], "replicas": arrival.category.replicas - 1}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": _build_metadata(arrival),
        "spec": {"runPolicy": {"backoffLimit": RETRIES}, "pytorchReplicaSpecs": roles},
    }


def _build_deployment(arrival: Arrival) -> Object:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": _build_metadata(arrival),
        "spec": {
            "replicas": arrival.category.replicas,
            "selector": {"matchLabels": {"app": arrival.name}},
            "template": _build_template(arrival, "server"),
        },
    }


def _build_inference_service(arrival: Arrival) -> Object:
    meta = _build_metadata(arrival)
    meta["annotations"] = {"serving.kserve.io/deploymentMode": "RawDeployment"}
    predictor = {
        "minReplicas": arrival.category.replicas,
        **_build_pod(arrival, "kserve-container"),
    }
    return {
        "apiVersion": "serving.kserve.io/v1beta1",
        "kind": "InferenceService",
        "metadata": meta,
        "spec": {"predictor": predictor},
    }


def _build_ray_cluster(arrival: Arrival) -> Object:
    # There are no nodes without GPUs here, and the head requests no GPU.
    head = _build_pod(arrival, "ray-head", gpus=0, tolerations=[GPU_TAINT])
    worker = {
        "groupName": "gpu",
        "replicas": arrival.category.replicas,
        "template": {"spec": _build_pod(arrival, "ray-worker")},
    }
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": _build_metadata(arrival),
        "spec": {"headGroupSpec": {"template": {"spec": head}}, "workerGroupSpecs": [worker]},
    }


_KINDS = {
    "Notebook": _build_notebook,
    "Job": _build_job,
    "PyTorchJob": _build_pytorch_job,
    "Deployment": _build_deployment,
    "InferenceService": _build_inference_service,
    "RayCluster": _build_ray_cluster,
}
