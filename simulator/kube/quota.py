"""Compute what objects use of a ResourceQuota, for admission and for the quota controller."""

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any

from fallow.kube.pod_requests import Amounts, add_amounts, sum_pod_amounts
from simulator.kube.kinds import ApiKind
from simulator.kube.pods import find_quality, is_extended

Object = dict[str, Any]

_METERED = {"cpu", "memory", "ephemeral-storage"}
_ENDED = {"Succeeded", "Failed"}


def format_amount(value: Fraction) -> str:
    """Return an amount as the server counts it: whole, else in thousandths."""
    if value.denominator == 1:
        return str(value.numerator)
    return f"{-(-value * 1000 // 1)}m"


def count_usage(kind: ApiKind, item: Object) -> Amounts:
    """Return what an object uses, by the names in quotas.

    Extended resources are metered by their requests only: `limits.nvidia.com/gpu` enforces nothing.
    """
    out: Amounts = {f"count/{kind.plural}{f'.{kind.group}' if kind.group else ''}": Fraction(1)}
    if kind.key != "Pod":
        if not kind.group:
            out[kind.plural] = Fraction(1)
        return out
    if item.get("status", {}).get("phase") in _ENDED:
        return out
    out["pods"] = Fraction(1)
    for name, value in sum_pod_amounts(item["spec"], "requests").items():
        if name in _METERED:
            out[name] = value
        if name in _METERED or is_extended(name):
            out[f"requests.{name}"] = value
    for name, value in sum_pod_amounts(item["spec"], "limits").items():
        if name in _METERED:
            out[f"limits.{name}"] = value
    return out


def list_missing_amounts(spec: Mapping[str, Any], hard: Mapping[str, str]) -> list[str]:
    """Return the amounts that a quota limits and some container does not have."""
    missing = set()
    for key in hard:
        side, _, name = key.rpartition(".") if "." in key else ("requests", "", key)
        if side not in {"requests", "limits"} or name not in {"cpu", "memory"}:
            continue
        for container in spec.get("containers") or ():
            if name not in ((container.get("resources") or {}).get(side) or {}):
                missing.add(key)
    return sorted(missing)


def is_in_scope(spec: Mapping[str, Any], item: Object) -> bool:
    """Return whether a quota's scopes include an object."""
    expressions = [{"scopeName": s, "operator": "Exists"} for s in spec.get("scopes") or ()]
    expressions += (spec.get("scopeSelector") or {}).get("matchExpressions") or []
    pod = item.get("spec") or {}
    return all(_is_matching(e, pod) for e in expressions)


def _is_matching(expression: Mapping[str, Any], pod: Mapping[str, Any]) -> bool:
    scope, verb = expression["scopeName"], expression["operator"]
    if scope == "PriorityClass":
        name = pod.get("priorityClassName")
        values = expression.get("values") or ()
        tests = {"In": name in values, "NotIn": name not in values, "Exists": bool(name)}
        return tests.get(verb, not name)
    if scope in {"BestEffort", "NotBestEffort"}:
        return (find_quality(pod) == "BestEffort") is (scope == "BestEffort")
    if scope in {"Terminating", "NotTerminating"}:
        return (pod.get("activeDeadlineSeconds") is not None) is (scope == "Terminating")
    return True


def fill_status(quota_object: Object, kinds: Iterable[tuple[ApiKind, Iterable[Object]]]) -> Object:
    """Return the status of a quota: its limits and what is used of them."""
    hard = quota_object["spec"].get("hard") or {}
    parts = [
        count_usage(k, i)
        for k, items in kinds
        for i in items
        if is_in_scope(quota_object["spec"], i)
    ]
    used: Amounts = {}
    for part in parts:
        add_amounts(used, {k: v for k, v in part.items() if k in hard})
    return {"hard": dict(hard), "used": {k: format_amount(used.get(k, Fraction(0))) for k in hard}}
