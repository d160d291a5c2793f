"""Compute what a pod requests of a node."""

from collectors.kube.shapes import ContainerSpec, PodSpec, Resources
from fallow.kube.pod_requests import (
    SIDECAR,
    Amounts,
    add_amounts,
    choose_amounts,
    read_amounts,
    reserve,
)


def sum_requests(spec: PodSpec) -> Amounts:
    """Return what the scheduler reserves for a pod.

    Pod-level requests win for the resources they name; overhead comes on top of `reserve`.
    Source: k8s.io/component-helpers/resource/helpers.go, PodRequests.
    """
    return _sum_reserved_amounts(spec, "requests")


def list_running_requests(spec: PodSpec) -> list[Amounts]:
    """Return what each container and sidecar requests."""
    running = (*(spec.containers or ()), *_list_sidecars(spec))
    return [_get_amounts(container.resources, "requests") for container in running]


def sum_limits(spec: PodSpec) -> Amounts:
    """Return a pod's limits; a resource that one container leaves unlimited has none."""
    total = _sum_reserved_amounts(spec, "limits")
    pod_level = read_amounts(spec.resources.limits) if spec.resources else {}
    running = [*(spec.containers or ()), *_list_sidecars(spec)]
    for container in running:
        container_limits = _get_amounts(container.resources, "limits")
        for name in [n for n in total if n not in container_limits and n not in pod_level]:
            del total[name]
    return total


def _sum_reserved_amounts(spec: PodSpec, side: str) -> Amounts:
    total = reserve(
        (_get_amounts(c.resources, side) for c in spec.containers or ()),
        ((_get_amounts(c.resources, side), c.restart_policy) for c in spec.init_containers or ()),
    )
    if spec.resources is not None:
        total.update(_get_amounts(spec.resources, side))
    add_amounts(total, read_amounts(spec.overhead))
    return total


def _get_amounts(resources: Resources | None, side: str) -> Amounts:
    return choose_amounts(resources.requests, resources.limits, side) if resources else {}


def _list_sidecars(spec: PodSpec) -> list[ContainerSpec]:
    return [c for c in spec.init_containers or () if c.restart_policy == SIDECAR]
