"""Decide which devices a pod's claims give it: anybody who may create a pod writes its annotations.

A DRA claim is allocated by the scheduler. HAMi's annotation needs a GPU request of its pod, and
devices of its pod's node: those that HAMi registered there. Where the node has no register the
devices are `estimated`. Their shares sum to at most the request.
"""

from collections.abc import Mapping

from collectors.kube.devices import (
    HAMI_ALLOCATED,
    Dra,
    PodDevice,
    limit_shares,
    read_hami_devices,
)
from collectors.kube.resources import read_hint, select_gpus
from collectors.kube.shapes import Pod
from fallow.kube.pod_requests import Amounts
from fallow.rejections import Rejection

HAMI_FIELD = "hami.io/*-devices-allocated"
_PERCENT = 100


def read_devices(
    pod: Pod, requested: Amounts, dra: Dra, registers: Mapping[str, Mapping[str, float]]
) -> tuple[list[PodDevice], list[Rejection]]:
    """Return the devices of a pod, and the claims that take nothing.

    `registers`: the devices that HAMi registered on each node, with their MiB.
    """
    node = pod.spec.node_name or ""
    register = registers.get(node, {})
    claimed = read_hami_devices(pod.metadata.annotations, register)
    devices = dra.devices(pod.metadata, node)
    counts = select_gpus(requested)
    if not claimed:
        return devices, []
    if not counts:
        return devices, [_refuse(pod, f"it names {claimed[0].device} and requests no GPU")]
    others = () if register or not node else frozenset[str]().union(*registers.values())
    admitted = [d for d in claimed if not d.estimated or not (register or d.device in others)]
    rest = {d.device for d in claimed}.difference(d.device for d in admitted)
    refused = (
        [_refuse(pod, f"{min(rest)} is no device of its node {node}")] if rest and node else []
    )
    limit = float(sum(counts.values())) * _find_part(pod, requested, admitted, register)
    return [*devices, *limit_shares(admitted, limit)], refused


def _find_part(
    pod: Pod, requested: Amounts, claimed: list[PodDevice], register: Mapping[str, float]
) -> float:
    """Return the part of each device that a pod requests; 1 where its memory is not known.

    An instance (`UUID[...]`) can be larger than the request.
    """
    annotations = pod.metadata.annotations or {}
    if any("[" in text for key, text in annotations.items() if HAMI_ALLOCATED.match(key)):
        return 1.0
    percent, cores, memory = (
        read_hint(requested, form) for form in ("memory_pct", "cores_pct", "memory_mib")
    )
    parts = [float(p) / _PERCENT for p in (percent, cores) if p is not None]
    if memory is not None:
        totals = [register.get(d.device) for d in claimed]
        parts += [float(memory) / total if total else 1.0 for total in totals]
    return min(max(parts, default=1.0), 1.0)


def _refuse(pod: Pod, reason: str) -> Rejection:
    meta = pod.metadata
    return Rejection(
        "allocation",
        meta.namespace,
        meta.name,
        HAMI_FIELD,
        reason,
        uid=meta.uid,
        node=pod.spec.node_name or "",
    )
