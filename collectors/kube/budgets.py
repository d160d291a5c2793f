"""Map PodDisruptionBudgets to rows of the `disruption_budget` table."""

from datetime import datetime
from typing import Any

import msgspec

from collectors.inventory import WHOLE
from collectors.kube.shapes import CustomObject
from fallow.disruptions import count_allowed


def build_budget_row(item: CustomObject, *, cluster: str, now: datetime) -> dict[str, Any]:
    """Return one row; a budget whose controller has not counted its pods yet allows nothing.

    Without a selector a budget covers no pod and its selector is `null`; an empty selector covers
    all pods, and so does one that cannot be read.
    """
    spec, status = item.spec or {}, item.status or {}
    selector = spec.get("selector")
    allowed = count_allowed(status, item.metadata.generation)
    return {
        WHOLE: not item.metadata.unreadable,
        "cluster": cluster,
        "namespace": item.metadata.namespace,
        "name": item.metadata.name,
        "first_seen": item.metadata.creation_timestamp or now,
        "last_seen": now,
        "selector": msgspec.json.encode(selector, order="sorted").decode()
        if isinstance(selector, dict)
        else "{}"
        if item.metadata.unreadable or selector is not None
        else "null",  # it covers no pod
        "min_available": _format_amount(spec.get("minAvailable")),
        "max_unavailable": _format_amount(spec.get("maxUnavailable")),
        "disruptions_allowed": allowed or 0,
        "healthy": _count(status.get("currentHealthy")),
        "wanted_healthy": _count(status.get("desiredHealthy")),
        "expected_pods": None if allowed is None else _count(status.get("expectedPods")),
    }


def _format_amount(amount: object) -> str:
    """Return pods or a percentage as written; empty, not null, so that a change is kept."""
    return str(amount) if isinstance(amount, (int, str)) else ""


def _count(amount: object) -> int | None:
    return amount if isinstance(amount, int) else None
