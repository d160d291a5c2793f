"""Label selectors of Kubernetes, as `metav1.LabelSelector` defines them."""

from collections.abc import Mapping, Sequence

import msgspec


class LabelExpression(msgspec.Struct, frozen=True):
    """One of a selector's `matchExpressions`."""

    key: str = ""
    operator: str = ""
    values: Sequence[str] | None = None


class LabelSelector(msgspec.Struct, frozen=True, rename="camel"):
    """A selector; without any term it matches all."""

    match_labels: Mapping[str, str] | None = None
    match_expressions: Sequence[LabelExpression] | None = None


def match_selector(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """Return whether a selector matches these labels: all terms must; an empty one matches all.

    None matches nothing. An unknown operator counts as met: to cover too much is safer than to
    cover too little. Source: k8s.io/apimachinery, LabelSelectorAsSelector.
    """
    if selector is None:
        return False
    equal = selector.match_labels or {}
    return all(labels.get(key) == value for key, value in equal.items()) and all(
        _match_expression(expression, labels) for expression in selector.match_expressions or ()
    )


def _match_expression(expression: LabelExpression, labels: Mapping[str, str]) -> bool:
    key, values = expression.key, expression.values or ()
    tests = {
        "In": labels.get(key) in values,
        "NotIn": key not in labels or labels[key] not in values,
        "Exists": key in labels,
        "DoesNotExist": key not in labels,
    }
    return tests.get(expression.operator, True)
