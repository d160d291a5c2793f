"""Read values of custom objects, whose spec and status differ by version."""

from collections.abc import Mapping
from typing import Any

from fallow.kube.quantities import parse_quantity


def get_map(value: object) -> Mapping[str, Any]:
    """Return a map; a value of another shape counts as absent."""
    return value if isinstance(value, dict) else {}


def list_maps(value: object) -> list[Mapping[str, Any]]:
    """Return the maps of a list; a value of another shape counts as absent."""
    return [v for v in value if isinstance(v, dict)] if isinstance(value, list) else []


def parse_number(value: object) -> float | None:
    """Return a Kubernetes quantity as a number; None = it is no quantity."""
    parsed = parse_quantity(value) if isinstance(value, (str, int, float)) else None
    return None if parsed is None else float(parsed)
