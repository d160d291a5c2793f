"""Read the constraints between pods that a scheduler must fulfil; preferences are left out."""

from collections.abc import Iterable
from typing import Any

from collectors.kube.shapes import PodAffinity, PodSpec, PodTerm

ANY = "*"
"""Means namespaces that a selector chooses: it may be any namespace."""


def read_constraints(spec: PodSpec) -> dict[str, Any]:
    """Return `apart` and `beside` (pod affinity), `spread` and `ports`; absent ones are left out.

    Each term has its topology and selector, and the namespaces that it names besides its own.
    """
    affinity = spec.affinity
    ports = sorted(
        f"{port.host_port}/{port.protocol}"
        for container in (*(spec.containers or ()), *(spec.init_containers or ()))
        for port in container.ports or ()
        if port.host_port
    )
    result = {
        "apart": _list_terms(affinity.pod_anti_affinity) if affinity else [],
        "beside": _list_terms(affinity.pod_affinity) if affinity else [],
        "spread": [
            {"topology": s.topology_key, "skew": s.max_skew, "selector": s.label_selector}
            for s in spec.topology_spread_constraints or ()
            if s.when_unsatisfiable == "DoNotSchedule"
        ],
        "ports": ports,
    }
    return {name: terms for name, terms in result.items() if terms}


def _list_terms(affinity: PodAffinity | None) -> list[dict[str, Any]]:
    required: Iterable[PodTerm] = (affinity.required if affinity else None) or ()
    return [
        {"topology": term.topology_key, "selector": term.label_selector}
        | ({"namespaces": names} if (names := _list_namespaces(term)) else {})
        for term in required
    ]


def _list_namespaces(term: PodTerm) -> list[str]:
    return [*(term.namespaces or ()), *([ANY] if term.namespace_selector is not None else ())]
