"""Compute what the scheduler reserves for a pod, from the amounts of its containers."""

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any

from fallow.kube.quantities import parse_quantity

SIDECAR = "Always"
"""Restart policy of an init container that goes on beside the pod's containers."""
Amounts = dict[str, Fraction]
"""An amount of each resource, by the resource's name."""


def read_amounts(resources: Mapping[str, str | int] | None) -> Amounts:
    """Read a resource list; values that are no quantity are left out."""
    read = ((name, parse_quantity(text)) for name, text in (resources or {}).items())
    return {name: value for name, value in read if value is not None}


def choose_amounts(
    requests: Mapping[str, str | int] | None, limits: Mapping[str, str | int] | None, side: str
) -> Amounts:
    """Return the `requests` or the `limits`; a missing request is the limit, as for the server."""
    chosen = read_amounts(limits)
    if side == "requests":
        chosen.update(read_amounts(requests))
    return chosen


def sum_pod_amounts(spec: Mapping[str, Any], side: str = "requests") -> Amounts:
    """Return what a pod reserves (`requests`) or may use (`limits`), from its spec as JSON has it.

    Pod-level amounts win for the resources they name; overhead adds to what has an amount.
    """

    def read(part: Mapping[str, Any]) -> Amounts:
        resources = part.get("resources") or {}
        return choose_amounts(resources.get("requests"), resources.get("limits"), side)

    total = reserve(
        map(read, spec.get("containers") or ()),
        ((read(c), c.get("restartPolicy")) for c in spec.get("initContainers") or ()),
    )
    total.update(read(spec))
    overhead = read_amounts(spec.get("overhead"))
    add_amounts(total, {k: v for k, v in overhead.items() if side == "requests" or k in total})
    return total


def reserve(
    containers: Iterable[Amounts], init_containers: Iterable[tuple[Amounts, str | None]]
) -> Amounts:
    """Return what a pod reserves; each init container comes with its restart policy.

    The greater of (containers + sidecars) and of each init container together with the sidecars
    started before it. Source: k8s.io/component-helpers/resource/helpers.go, PodRequests.
    """
    running: Amounts = {}
    for amounts in containers:
        add_amounts(running, amounts)
    peak: Amounts = {}
    sidecars: Amounts = {}
    for amounts, restart_policy in init_containers:
        beside = {**sidecars}
        add_amounts(beside, amounts)
        if restart_policy == SIDECAR:
            add_amounts(running, amounts)
            sidecars = beside
        _raise_to(peak, beside)
    _raise_to(running, peak)
    return running


def add_amounts(total: Amounts, amounts: Mapping[str, Fraction]) -> None:
    """Add amounts to a total, resource by resource."""
    for name, value in amounts.items():
        total[name] = total[name] + value if name in total else value


def _raise_to(total: Amounts, amounts: Mapping[str, Fraction]) -> None:
    for name, value in amounts.items():
        total[name] = max(total.get(name, value), value)
