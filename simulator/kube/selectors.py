"""Evaluate label and field selectors, in queries and in objects."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from fallow.selectors import LabelExpression
from simulator.kube.kinds import ApiKind
from simulator.kube.status import build_bad_request

Object = dict[str, Any]
Test = Callable[[Object], bool]

FIELDS = {
    "Pod": (
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "status.phase",
        "status.podIP",
        "status.nominatedNodeName",
    ),
    "Event": (
        "involvedObject.kind",
        "involvedObject.namespace",
        "involvedObject.name",
        "involvedObject.uid",
        "involvedObject.apiVersion",
        "involvedObject.resourceVersion",
        "involvedObject.fieldPath",
        "reason",
        "reportingComponent",
        "source",
        "type",
    ),
    "Node": ("spec.unschedulable",),
    "Namespace": ("status.phase",),
    "Job": ("status.successful",),
    "ReplicaSet": ("status.replicas",),
    "ResourceSlice": ("spec.nodeName", "spec.driver"),
}
"""Fields by which the server can select, besides name and namespace."""

_SET = re.compile(r"^\s*([^\s!=,()]+)\s+(in|notin)\s*\(([^)]*)\)\s*$")
_EQUAL = re.compile(r"^\s*([^\s!=,()]+)\s*(==|=|!=)\s*([^\s!=,()]*)\s*$")
_EXISTS = re.compile(r"^\s*(!?)\s*([^\s!=,()]+)\s*$")
_COMMA = re.compile(r",(?![^(]*\))")


def parse_label_selector(selector: Mapping[str, str] | str | None) -> Test | None:
    """Return a test of objects' labels; None selects all.

    Raises:
        ApiError: 400 the text is no selector.
    """
    if not selector:
        return None
    if isinstance(selector, Mapping):
        wanted = dict(selector)
        return lambda item: wanted.items() <= _get_labels(item).items()
    tests = [_parse_requirement(part) for part in _COMMA.split(selector)]
    return lambda item: all(test.matches(_get_labels(item)) for test in tests)


def _get_labels(item: Object) -> Mapping[str, str]:
    return item["metadata"].get("labels") or {}


def _parse_requirement(text: str) -> LabelExpression:
    if match := _SET.match(text):
        values = [v.strip() for v in match[3].split(",")]
        return LabelExpression(match[1], "In" if match[2] == "in" else "NotIn", values)
    if match := _EQUAL.match(text):
        return LabelExpression(match[1], "NotIn" if match[2] == "!=" else "In", [match[3]])
    if match := _EXISTS.match(text):
        return LabelExpression(match[2], "DoesNotExist" if match[1] else "Exists")
    raise build_bad_request(f"unable to parse requirement: {text!r}")


def format_selector(selector: Mapping[str, Any] | None) -> str:
    """Return a LabelSelector object as the text that a scale subresource shows."""
    words = [f"{k}={v}" for k, v in sorted(((selector or {}).get("matchLabels") or {}).items())]
    for e in (selector or {}).get("matchExpressions") or ():
        key, verb, values = e["key"], e["operator"], ",".join(e.get("values") or ())
        texts = {"In": f"{key} in ({values})", "NotIn": f"{key} notin ({values})", "Exists": key}
        words.append(texts.get(verb, f"!{key}"))
    return ",".join(words)


def parse_field_selector(kind: ApiKind, text: str | None) -> Test | None:
    """Return a test of an object's fields; None selects all.

    Raises:
        ApiError: 400 no selector, or a field this kind is not indexed by.
    """
    tests = []
    for part in (text or "").split(","):
        if not part:
            continue
        match = _EQUAL.match(part)
        if match is None:
            raise build_bad_request(f"invalid selector: {part!r}; can't understand {part!r}")
        field, verb, value = match.groups()
        legal = ("metadata.name", "metadata.namespace", *FIELDS.get(kind.key, ()))
        if field not in legal:
            raise build_bad_request(
                f'Unable to find "{kind.plural}" that match label selector "", field selector '
                f'"{text}": field label not supported: {field}'
            )
        tests.append((field.split("."), verb != "!=", value))
    if not tests:
        return None
    return lambda item: all((_get_field(item, path) == v) is equal for path, equal, v in tests)


def _get_field(item: Object, path: list[str]) -> str:
    value: Any = item
    for part in path:
        value = (value or {}).get(part) if isinstance(value, Mapping) else None
    if path == ["source"] and isinstance(value, Mapping):
        value = value.get("component")
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)
