"""Read kinds that Kueue may suspend (`suspendable.csv`): their switch, their pods' requests.

A row's `templates` are paths of pod templates beneath `spec`; `{}` is every key of a map, `[]`
every item of a list. `*field` names the count, which lies beside the last `{}`, `[]` or template.
"""

from collections.abc import Iterator
from functools import cache
from typing import Any

import msgspec

from fallow.kube.objects import get_path
from fallow.resources import read_table
from simulator.cluster.objects import Object, build_nested_patch


class PodSet(msgspec.Struct, frozen=True):
    """Pods of one shape."""

    name: str
    count: int
    spec: dict[str, Any]


@cache
def _read_rows() -> dict[str, dict[str, str]]:
    return {row["kind"]: row for row in read_table("simulator.cluster", "suspendable.csv")}


def list_suspendable() -> tuple[str, ...]:
    """Return the kinds that have a switch."""
    return tuple(_read_rows())


def is_suspended(obj: Object) -> bool:
    """Return whether an object is suspended."""
    return bool(get_path(obj, "spec", *_read_rows()[obj["kind"]]["path"].split(".")))


def suspend_patch(obj: Object, *, off: bool) -> Object:
    """Return the merge patch that suspends an object, or lets it run."""
    return build_nested_patch(off, "spec", *_read_rows()[obj["kind"]]["path"].split("."))


def list_pod_sets(obj: Object) -> list[PodSet]:
    """Return the pods that an object creates when it runs."""
    sets: list[PodSet] = []
    for text in _read_rows()[obj["kind"]]["templates"].split():
        path, _, field = text.partition("*")
        for label, holder, template in _walk(obj["spec"], path.split("."), "main", obj["spec"]):
            count = int(holder.get(field) or 1) if field else 1
            sets.append(PodSet(label.lower(), count * _count_inner(holder), _get_spec(template)))
    return sets


def _walk(
    node: Any, path: list[str], label: str, holder: Any
) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    if not path:
        yield label, holder, node or {}
        return
    first, rest = path[0], path[1:]
    if first == "{}":
        for key, value in (node or {}).items():
            yield from _walk(value, rest, key, value)
    elif first == "[]":
        for value in node or ():
            set_name = value.get("name") or value.get("groupName") or label
            yield from _walk(value, rest, set_name, value)
    elif isinstance(node, dict) and first in node:
        inner = node[first]
        yield from _walk(inner, rest, label, inner if not rest and first == "trainer" else holder)


def _count_inner(holder: dict[str, Any]) -> int:
    """Return how many pods each job of a JobSet runs at once."""
    return int(get_path(holder, "template", "spec", "parallelism", default=1))


def _get_spec(template: dict[str, Any]) -> dict[str, Any]:
    """Return a pod's spec; a TrainJob's trainer has only its container's requests."""
    if "spec" in template:
        spec: dict[str, Any] = template["spec"]
        return spec
    return {"containers": [{"name": "node", "resources": template.get("resourcesPerNode") or {}}]}
