"""A taint in the first dump only."""

from typing import Any

from tests.field.site import build_node
from tests.field.situation import Situation


def _taint(node: dict[str, Any]) -> dict[str, Any]:
    node["spec"]["taints"] = [{"key": "karpenter.sh/not-ready", "effect": "NoSchedule"}]
    return node


SITUATION = Situation(
    kind="B",
    dumps=[[_taint(build_node("a"))], [build_node("a")]],
    nodes={"a": {"taints": "[]"}},
)
