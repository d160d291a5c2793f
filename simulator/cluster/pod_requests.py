"""Read a pod's requests from its spec as the schedulers read it."""

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from fallow.gpu_models import find_gpu_model
from fallow.kube.objects import get_annotations, get_labels, get_namespace, get_path, get_uid, name
from fallow.kube.pod_requests import sum_pod_amounts
from fallow.kube.quantities import require_quantity
from simulator.cluster.objects import Object
from simulator.cluster.scheduler.requests import WHOLE, NodeTaint, PodRequest, PodToleration
from simulator.kube.server_metadata import parse_time

MIB = 2**20
GPU, SHARED = "nvidia.com/gpu", "nvidia.com/gpu.shared"
MIG = "nvidia.com/mig-"
HAMI_MEMORY, HAMI_CORES = "nvidia.com/gpumem", "nvidia.com/gpucores"
KAI_FRACTION, KAI_MEMORY, KAI_DEVICES = "gpu-fraction", "gpu-memory", "gpu-fraction-num-devices"
PRODUCT = "nvidia.com/gpu.product"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
GANG_LABELS = ("scheduling.x-k8s.io/pod-group", "pod-group-name")
GANG_NOTES = ("scheduling.k8s.io/group-name", "pod-group-name")


def request(pod: Object) -> PodRequest:
    """Return what one pod requests of a node."""
    spec, requested = pod["spec"], sum_pod_amounts(pod["spec"])
    count, profile = int(requested.get(GPU, 0) or requested.get(SHARED, 0)), ""
    for resource, number in requested.items():
        if resource.startswith(MIG):
            count, profile = int(number), resource.removeprefix(MIG)
    share = int(requested.get(HAMI_CORES, 100) * 10)
    memory = int(requested.get(HAMI_MEMORY, 0))
    notes = get_annotations(pod)
    if KAI_FRACTION in notes or KAI_MEMORY in notes:
        count = int(notes.get(KAI_DEVICES, "1"))
        share = round(float(notes.get(KAI_FRACTION, "0")) * WHOLE) or 1
        memory = int(notes.get(KAI_MEMORY, "0"))
    selector, models = _parse_affinity(spec)
    return PodRequest(
        uid=get_uid(pod),
        name=f"{get_namespace(pod)}/{name(pod)}",
        cpu_milli=math.ceil(requested.get("cpu", Fraction(0)) * 1000),
        memory_mib=math.ceil(requested.get("memory", Fraction(0)) / MIB),
        gpus=count,
        gpu_milli=min(share, WHOLE),
        gpu_memory_mib=memory,
        profile=profile,
        gpu_models=models,
        selector=selector,
        excluded=_list_excluded(spec),
        tolerations=tuple(_parse_toleration(t) for t in spec.get("tolerations") or ()),
        priority=int(spec.get("priority") or 0),
        created_s=parse_time(pod["metadata"].get("creationTimestamp", "")),
        preempts=spec.get("preemptionPolicy") != "Never",
        gang=get_gang(pod),
    )


def get_gang(pod: Object) -> str:
    """Return the pod group that a pod belongs to, `namespace/name`; empty for none."""
    labels, notes = get_labels(pod), get_annotations(pod)
    name = next((labels[k] for k in GANG_LABELS if k in labels), None)
    name = name or next((notes[k] for k in GANG_NOTES if k in notes), None)
    return f"{get_namespace(pod)}/{name}" if name else ""


def _parse_toleration(text: Mapping[str, Any]) -> PodToleration:
    return PodToleration(
        text.get("key") or "",
        text.get("operator") or "Equal",
        text.get("value") or "",
        text.get("effect") or "",
    )


def taint(text: Mapping[str, Any]) -> NodeTaint:
    """Read a node's taint."""
    return NodeTaint(text["key"], text.get("value") or "", text.get("effect") or "NoSchedule")


def _parse_affinity(spec: Mapping[str, Any]) -> tuple[tuple[tuple[str, str], ...], tuple[str, ...]]:
    """Return labels that must be equal, and GPU models: the simulated part of the node affinity.

    Of `requiredDuringScheduling` the first term's `In` counts: one value as a label, several
    products as models.
    """
    labels = dict(spec.get("nodeSelector") or {})
    models: tuple[str, ...] = ()
    required = get_path(spec, "affinity", "nodeAffinity", REQUIRED, "nodeSelectorTerms")
    terms: list[Mapping[str, Any]] = required or [{}]
    for expression in terms[0].get("matchExpressions") or ():
        values: list[str] = expression.get("values") or []
        if expression["operator"] != "In":
            continue
        if len(values) == 1:
            labels[expression["key"]] = values[0]
        elif expression["key"] == PRODUCT:
            canonical_models = (find_gpu_model(value) for value in values)
            models = tuple(dict.fromkeys(m.gpu_model for m in canonical_models if m is not None))
    return tuple(sorted(labels.items())), models


def _list_excluded(spec: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Return labels that a pod's node must not have: `NotIn` of the affinity's first term."""
    required = get_path(spec, "affinity", "nodeAffinity", REQUIRED, "nodeSelectorTerms")
    terms: list[Mapping[str, Any]] = required or [{}]
    return tuple(
        sorted(
            (expression["key"], value)
            for expression in terms[0].get("matchExpressions") or ()
            if expression["operator"] == "NotIn"
            for value in expression.get("values") or ()
        )
    )


def count_gpus(pod_spec: Mapping[str, Any]) -> float:
    """Return how many GPUs a pod requests, instances by their compute slices."""
    total = 0.0
    for resource, number in sum_uses(pod_spec).items():
        if resource in {GPU, SHARED}:
            total += float(number)
        elif resource.startswith(MIG):
            total += float(number) * int(resource.removeprefix(MIG).partition("g")[0]) / 7
    return total


def count_units(resource: str, text: str | float) -> int:
    """Return a quantity as quotas count it: CPU in milli, the rest in ones."""
    value = require_quantity(text)
    return math.ceil(value * 1000) if resource == "cpu" else math.ceil(value)


def sum_uses(pod_spec: Mapping[str, Any]) -> dict[str, int]:
    """Return a pod's use of each resource, as quotas count it."""
    amounts = sum_pod_amounts(pod_spec)
    return {k: math.ceil(v * 1000) if k == "cpu" else math.ceil(v) for k, v in amounts.items()}
