"""Decide which devices a pod's claims give it: anybody who may create a pod writes its annotations.

A DRA claim is allocated by the scheduler, and its devices are in a slice of the pod's node. HAMi's
annotation needs a GPU request of its pod, and devices of its pod's node: those that HAMi registered
there. Where the node has no register the devices are `estimated`. Their shares sum to at most the
request.
"""

from collections.abc import Mapping

from collectors.kube.devices import HAMI_ALLOCATED, Dra, PodDevice, limit_shares, read_hami_devices
from collectors.kube.shapes import Pod
from fallow.kube.gpu_resources import read_hint, select_gpus
from fallow.kube.pod_requests import Amounts
from fallow.rejections import Rejection

HAMI_FIELD = "hami.io/*-devices-allocated"
DRA_FIELD = "status.allocation.devices"
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
    allocated = dra.claimed(pod.metadata)
    devices = [d for d, place in allocated if place is None or (place and place == (node or place))]
    refused = _list_rest(pod, DRA_FIELD, [d for d, _ in allocated], devices)
    counts = select_gpus(requested)
    if not claimed:
        return devices, refused
    if not counts:
        reason = f"it names {claimed[0].device} and requests no GPU"
        return devices, [*refused, _refuse(pod, HAMI_FIELD, reason)]
    others = () if register or not node else frozenset[str]().union(*registers.values())
    admitted = [d for d in claimed if not d.estimated or not (register or d.device in others)]
    refused += _list_rest(pod, HAMI_FIELD, claimed, admitted) if node else []
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


def _list_rest(
    pod: Pod, field: str, claimed: list[PodDevice], admitted: list[PodDevice]
) -> list[Rejection]:
    """Return why devices are not admitted: one rejection of a pod and field names one of them."""
    rest = {d.device for d in claimed}.difference(d.device for d in admitted)
    place = f"its node {pod.spec.node_name}" if pod.spec.node_name else "any node"
    return [_refuse(pod, field, f"{min(rest)} is no device of {place}")] if rest else []


def _refuse(pod: Pod, field: str, reason: str) -> Rejection:
    meta, node = pod.metadata, pod.spec.node_name or ""
    return Rejection(
        "allocation", meta.namespace, meta.name, field, reason, uid=meta.uid, node=node
    )
