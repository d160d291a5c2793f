"""Compute what a pod requests of a node, and how many GPUs that is."""

from collections.abc import Mapping
from fractions import Fraction

from collectors.kube.quantities import quantity
from collectors.kube.shapes import ContainerSpec, PodSpec, Resources
from fallow.kube.gpu_resources import COUNTED, GpuResource, gpu_resource

SIDECAR = "Always"
Amounts = dict[str, Fraction]


def gpus(amounts: Mapping[str, Fraction]) -> dict[GpuResource, Fraction]:
    """Return the resources among the amounts that count devices and are more than zero."""
    devices = ((gpu_resource(name), value) for name, value in amounts.items() if value > 0)
    return {r: value for r, value in devices if r is not None and r.form in COUNTED}


def hint(amounts: Mapping[str, Fraction], form: str) -> Fraction | None:
    """Return the request per shared device: `memory_mib`, `memory_pct` or `cores_pct`."""
    for name, value in amounts.items():
        resource = gpu_resource(name)
        if resource is not None and resource.form == form and value > 0:
            return value
    return None


def amounts(resources: Mapping[str, str | int] | None) -> Amounts:
    """Read a resource list; values that are no quantity are left out."""
    read = ((name, quantity(text)) for name, text in (resources or {}).items())
    return {name: value for name, value in read if value is not None}


def requests(spec: PodSpec) -> Amounts:
    """Return what the scheduler reserves for a pod.

    The greater of (containers + sidecars) and of each init container together with the sidecars
    started before it; pod-level requests win for the resources they name; overhead comes on top.
    Source: k8s.io/component-helpers/resource/helpers.go, PodRequests.
    """
    return _reserved_amounts(spec, "requests")


def limits(spec: PodSpec) -> Amounts:
    """Return a pod's limits; a resource that one container leaves unlimited has none."""
    total = _reserved_amounts(spec, "limits")
    pod_level = amounts(spec.resources.limits) if spec.resources else {}
    running = [*(spec.containers or ()), *_sidecars(spec)]
    for container in running:
        container_limits = _of(container.resources, "limits")
        for name in [n for n in total if n not in container_limits and n not in pod_level]:
            del total[name]
    return total


def _reserved_amounts(spec: PodSpec, side: str) -> Amounts:
    running: Amounts = {}
    for container in spec.containers or ():
        _add(running, _of(container.resources, side))
    peak: Amounts = {}
    sidecars: Amounts = {}
    for container in spec.init_containers or ():
        amounts_reserved = _of(container.resources, side)
        if container.restart_policy == SIDECAR:
            _add(running, amounts_reserved)
            _add(sidecars, amounts_reserved)
            amounts_reserved = dict(sidecars)
        else:
            _add(amounts_reserved, sidecars)
        _peak(peak, amounts_reserved)
    _peak(running, peak)
    if spec.resources is not None:
        running.update(_of(spec.resources, side))
    _add(running, amounts(spec.overhead))
    return running


def _of(resources: Resources | None, side: str) -> Amounts:
    """Return the requests or the limits; a missing request is the limit (API server's default)."""
    if resources is None:
        return {}
    if side == "limits":
        return amounts(resources.limits)
    return {**amounts(resources.limits), **amounts(resources.requests)}


def _sidecars(spec: PodSpec) -> list[ContainerSpec]:
    return [c for c in spec.init_containers or () if c.restart_policy == SIDECAR]


def _add(into: Amounts, more: Mapping[str, Fraction]) -> None:
    for name, value in more.items():
        into[name] = into.get(name, Fraction(0)) + value


def _peak(into: Amounts, other: Mapping[str, Fraction]) -> None:
    for name, value in other.items():
        into[name] = max(into.get(name, value), value)
