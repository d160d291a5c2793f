"""Evaluate ValidatingAdmissionPolicies as an API server does, with CEL's own engine."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

from cel_expr_python import cel

Object = dict[str, Any]
NAMES = ("request", "object", "oldObject", "namespaceObject", "variables")


class CelError(Exception):
    """An expression that has no value for a request."""


def refusals(
    documents: Iterable[Object], request: Mapping[str, Any], **objects: Any
) -> dict[str, str]:
    """Return the messages of the policies that refuse a request by name; empty = it is admitted.

    `request` is that of an AdmissionReview, without fields that are empty. `objects`: object,
    oldObject and namespaceObject; null where there is none.
    """
    documents = list(documents)
    bound = {
        d["spec"]["policyName"]
        for d in documents
        if d["kind"] == "ValidatingAdmissionPolicyBinding"
        and d["spec"]["validationActions"] == ["Deny"]
    }
    policies = [d for d in documents if d["kind"] == "ValidatingAdmissionPolicy"]
    return {
        policy["metadata"]["name"]: message
        for policy in policies
        if policy["metadata"]["name"] in bound and _matches_rules(policy["spec"], request)
        for message in _validate(policy["spec"], {"request": dict(request), **objects})
    }


def _validate(spec: Object, data: Mapping[str, Any]) -> list[str]:
    assert spec["failurePolicy"] == "Fail"
    names = dict.fromkeys(NAMES) | dict(data)
    try:
        if not all(value(c["expression"], names) for c in spec["matchConditions"]):
            return []
    except CelError as error:
        return [str(error)]
    variables = _Variables(spec["variables"], names)
    messages = []
    for validation in spec["validations"]:
        try:
            passed = variables.value(validation["expression"])
        except CelError as error:
            messages.append(f"expression error: {error}")
            continue
        if passed is not True:
            messages.append(str(variables.value(validation["messageExpression"])))
    return messages


class _Variables:
    """The variables of a policy: each is computed when an expression names it, as in the server."""

    def __init__(self, rows: Sequence[Object], names: Mapping[str, Any]) -> None:
        self._rows = {row["name"]: row["expression"] for row in rows}
        self._order = [*self._rows]
        self._names = names

    def value(self, expression: str) -> Any:
        needed = self._needed(expression)
        values: Object = {}
        for name in self._order:
            if name in needed:
                values[name] = value(self._rows[name], {**self._names, "variables": values})
        return value(expression, {**self._names, "variables": values})

    def _needed(self, expression: str) -> set[str]:
        # The annotations of an object that does not exist have no value: as lazily as the server.
        operation = self._names["request"]["operation"]
        named = {n for n in self._order if f"variables.{n}" in expression}
        if operation != "UPDATE":
            named -= {"before", "after"}
        return named.union(*(self._needed(self._rows[n]) for n in named))


def value(expression: str, data: Mapping[str, Any]) -> Any:
    """Return the value of an expression.

    Raises:
        CelError: it has none, such as a field that is absent.
    """
    result = _compile(expression).eval(data=dict(data))
    if result.type() == cel.Type.ERROR:
        raise CelError(str(result.value()))
    return result.plain_value()


ENVIRONMENT = cel.NewEnv(variables=dict.fromkeys(NAMES, cel.Type.DYN))


@cache
def _compile(expression: str) -> Any:
    return ENVIRONMENT.compile(expression)


def _matches_rules(spec: Object, request: Mapping[str, Any]) -> bool:
    group, resource = request["resource"]["group"], request["resource"]["resource"]
    part = request.get("subResource", "")
    whole = f"{resource}/{part}" if part else resource
    return any(
        {group, "*"} & set(rule["apiGroups"])
        and {request["operation"], "*"} & set(rule["operations"])
        and {whole, "*/*", *(() if part else ("*",))} & set(rule["resources"])
        for rule in spec["matchConstraints"]["resourceRules"]
    )
