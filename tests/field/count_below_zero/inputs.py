"""A node with 2 ** 64 GPUs beside one with two."""

from tests.field.site import build_node, list_lines
from tests.field.situation import Situation

SITUATION = Situation(
    kind="G",
    dumps=[
        [
            build_node("a", None, resources={"nvidia.com/gpu": "18446744073709551615"}),
            build_node("b", 2),
        ]
    ],
    lines=[line for k in (0, 1) for line in list_lines(f"GPU-{k}", "b", gpu=k)],
    hours={"node": {"b": 12.0}},
    nodes={"a": {"gpu_count": None}, "b": {"gpu_count": 2}},
    doctor=["rejected node"],
)
