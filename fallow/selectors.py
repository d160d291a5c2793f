"""Match labels against selectors of Kubernetes: of pods by labels, and of nodes by affinity."""

from collections.abc import Mapping, Sequence

import msgspec


class LabelExpression(msgspec.Struct, frozen=True):
    """One of the `matchExpressions` of a selector or of a node affinity."""

    key: str = ""
    operator: str = ""
    values: Sequence[str] | None = None

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether labels meet it; a missing label meets `NotIn`.

        `Gt` and `Lt` compare whole numbers, and a label that is none does not meet them. An unknown
        operator counts as met: to cover too much is safer than to cover too little.
        Source: k8s.io/apimachinery, labels.Requirement.Matches.
        """
        value, values = labels.get(self.key), self.values or ()
        match self.operator:
            case "In":
                return value in values
            case "NotIn":
                return value is None or value not in values
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None
            case "Gt" | "Lt":
                return _is_beyond(value, values, greater=self.operator == "Gt")
        return True


class LabelSelector(msgspec.Struct, frozen=True, rename="camel"):
    """A selector; without any term it matches all."""

    match_labels: Mapping[str, str] | None = None
    match_expressions: Sequence[LabelExpression] | None = None


def read_selector(selector: object) -> LabelSelector | None:
    """Return a selector as JSON has it."""
    return msgspec.convert(selector, LabelSelector | None)


def match_selector(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """Return whether a selector matches these labels: all terms must; an empty one matches all.

    None matches nothing. Source: k8s.io/apimachinery, LabelSelectorAsSelector.
    """
    if selector is None:
        return False
    equal = selector.match_labels or {}
    return all(labels.get(key) == value for key, value in equal.items()) and all(
        expression.matches(labels) for expression in selector.match_expressions or ()
    )


def _is_beyond(value: str | None, values: Sequence[str], *, greater: bool) -> bool:
    try:
        number, bound = int(value or ""), int(values[0])
    except (ValueError, IndexError):
        return False
    return number > bound if greater else number < bound
