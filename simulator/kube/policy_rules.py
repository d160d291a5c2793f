"""Validate admission policies and bindings as far as `policy_rules.csv` goes; CEL is not compiled.

CEL's own engine accepts more: its reserved words as names of variables, and any rule.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from fallow.resources import read_table
from simulator.kube.status import InvalidField

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
POLICIES = {"ValidatingAdmissionPolicy", "MutatingAdmissionPolicy"}
BINDING = "ValidatingAdmissionPolicyBinding"
_RULES = "spec.matchConstraints.resourceRules"
_FIELDS = ("apiGroups", "apiVersions", "operations", "resources")


@cache
def _read_rules(rule: str) -> Mapping[str, str]:
    rows = read_table("simulator.kube", "policy_rules.csv")
    return {row["value"]: row["text"] for row in rows if row["rule"] == rule}


def find_invalid_policy_fields(kind: str, spec: Mapping[str, Any]) -> Iterator[InvalidField]:
    """Yield what validation refuses about an admission policy or a binding of one."""
    if kind == BINDING:
        yield from _check_actions(spec.get("validationActions") or ())
    if kind not in POLICIES:
        return
    yield from _check_legal("failurePolicy", "spec.failurePolicy", spec.get("failurePolicy"))
    for i, variable in enumerate(spec.get("variables") or ()):
        name = variable.get("name") or ""
        if not NAME.fullmatch(name) or name in _read_rules("reserved"):
            message = f'Invalid value: "{name}": must be a valid CEL identifier'
            yield InvalidField(f"spec.variables[{i}].name", message)
    for i, rule in enumerate((spec.get("matchConstraints") or {}).get("resourceRules") or ()):
        for field in _FIELDS:
            yield from _check_words(f"{_RULES}[{i}].{field}", field, rule.get(field) or ())


def _check_words(where: str, field: str, words: Sequence[str]) -> Iterator[InvalidField]:
    if not words:
        yield InvalidField(where, "Required value", "FieldValueRequired")
    for word in words:
        text = _read_rules("alone").get(f"{field} {word}")
        if text and len(words) > 1:
            yield InvalidField(where, f"Invalid value: {[*words]}: {text}")
    if field == "operations":
        for i, word in enumerate(words):
            yield from _check_legal("operation", f"{where}[{i}]", word)
    others = [word for word in words if word != "*" and "/" not in word]
    if field == "resources" and "*" in words and others:
        text = "if '*' is present, must not specify other resources without subresources"
        yield InvalidField(where, f"Invalid value: {[*words]}: {text}")


def _check_actions(actions: Sequence[str]) -> Iterator[InvalidField]:
    where = "spec.validationActions"
    if not actions:
        yield InvalidField(where, "Required value", "FieldValueRequired")
    for i, action in enumerate(actions):
        yield from _check_legal("action", f"{where}[{i}]", action)
    if {"Deny", "Warn"} <= {*actions}:
        message = "must not contain both Deny and Warn (repeating the same validation failure)"
        yield InvalidField(where, f"Invalid value: {[*actions]}: {message}")


def _check_legal(rule: str, where: str, value: str | None) -> Iterator[InvalidField]:
    legal = _read_rules(rule)
    if value is not None and value not in legal:
        listed = ", ".join(f'"{word}"' for word in sorted(legal))
        message = f'Unsupported value: "{value}": supported values: {listed}'
        yield InvalidField(where, message, "FieldValueNotSupported")
