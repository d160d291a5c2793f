"""Label selectors of Kubernetes, as `metav1.LabelSelector` defines them."""

from collections.abc import Mapping
from typing import Any


def match_selector(selector: Mapping[str, Any] | None, labels: Mapping[str, str]) -> bool:
    """Return whether a selector matches these labels: all terms must; an empty one matches all.

    None matches nothing. An unknown operator counts as met: to cover too much is safer than to
    cover too little. Source: k8s.io/apimachinery, LabelSelectorAsSelector.
    """
    if selector is None:
        return False
    equal = selector.get("matchLabels") or {}
    return all(labels.get(key) == value for key, value in equal.items()) and all(
        _match_expression(expression, labels)
        for expression in selector.get("matchExpressions") or ()
    )


def _match_expression(expression: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    key, values = expression.get("key", ""), expression.get("values") or ()
    tests = {
        "In": labels.get(key) in values,
        "NotIn": key not in labels or labels[key] not in values,
        "Exists": key in labels,
        "DoesNotExist": key not in labels,
    }
    return tests.get(str(expression.get("operator")), True)
