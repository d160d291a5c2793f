"""Two nodes of one GPU each, whose exporters show the same one."""

from tests.field.site import BUSY, build_node, build_pod, list_lines
from tests.field.situation import Situation

SITUATION = Situation(
    kind="H",
    dumps=[[build_node("a", 1), build_node("b", 1), build_pod("train", "a", gpus=1)]],
    lines=[
        *list_lines("GPU-0", "a", values=BUSY, pod="train", namespace="ml"),
        *list_lines("GPU-0", "b", values=BUSY),
    ],
    hours={"node,state": {"a,unknown": 6.0, "b,unknown": 6.0}},
)
