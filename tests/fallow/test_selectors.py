"""Label selectors and node affinities match as Kubernetes defines."""

from typing import Any

import msgspec
import pytest

from fallow.selectors import LabelExpression, LabelSelector, match_selector

EXPRESSIONS = "matchExpressions"


@pytest.mark.parametrize(
    ("selector", "chosen"),
    [
        (None, False),
        ({}, True),
        ({"matchLabels": {"app": "web"}}, True),
        ({"matchLabels": {"app": "web", "tier": "x"}}, False),
        ({EXPRESSIONS: [{"key": "app", "operator": "In", "values": ["web", "api"]}]}, True),
        ({EXPRESSIONS: [{"key": "app", "operator": "NotIn", "values": ["web"]}]}, False),
        ({EXPRESSIONS: [{"key": "tier", "operator": "NotIn", "values": ["x"]}]}, True),
        ({EXPRESSIONS: [{"key": "app", "operator": "Exists"}]}, True),
        ({EXPRESSIONS: [{"key": "app", "operator": "DoesNotExist"}]}, False),
        ({EXPRESSIONS: [{"key": "app", "operator": "Like", "values": ["w"]}]}, True),
        ({EXPRESSIONS: [{"key": "app", "operator": "In"}]}, False),
        ({"matchLabels": {"app": "web"}, EXPRESSIONS: [{"key": "x", "operator": "Exists"}]}, False),
    ],
)
def test_a_selector_chooses_as_kubernetes_defines(selector: Any, chosen: bool) -> None:
    terms = msgspec.convert(selector, LabelSelector | None)
    assert match_selector(terms, {"app": "web"}) is chosen


@pytest.mark.parametrize(
    ("operator", "values", "label", "matches"),
    [
        ("In", ["a", "b"], "a", True),
        ("In", ["a", "b"], "c", False),
        ("In", ["a"], None, False),
        ("NotIn", ["a"], "a", False),
        ("NotIn", ["a"], "b", True),
        ("NotIn", ["a"], None, True),
        ("Exists", [], "", True),
        ("Exists", [], None, False),
        ("DoesNotExist", [], "", False),
        ("DoesNotExist", [], None, True),
        ("Gt", ["79"], "80", True),
        ("Gt", ["80"], "80", False),
        ("Gt", ["9"], "80", True),  # as numbers, not as texts
        ("Lt", ["81"], "80", True),
        ("Lt", ["80"], "80", False),
        ("Gt", ["79"], "80Gi", False),
        ("Gt", ["x"], "80", False),
        ("Lt", [], "80", False),
        ("Gt", ["79"], None, False),
        ("Lt", ["79"], None, False),
        ("Like", ["a"], "b", True),
    ],
)
def test_each_operator_of_an_expression(
    operator: str, values: list[str], label: str | None, matches: bool
) -> None:
    labels = {"other": "x"} | ({} if label is None else {"gpu": label})
    assert LabelExpression("gpu", operator, values).matches(labels) is matches
