"""A busy GPU whose user requests none."""

from tests.field.site import build_node, build_pod, list_lines
from tests.field.situation import Situation

SITUATION = Situation(
    kind="F",
    dumps=[[build_node("a", 1), build_pod("asapp", "a")]],
    lines=list_lines("GPU-0", "a"),
    hours={"state": {"productive": 6.0}, "node": {"a": 6.0}},
    answers={"select cluster, pod from allocation": []},
)
