"""Eight GPUs, one of them unhealthy, five of them held."""

from tests.field.site import BUSY, FREE, build_node, build_pod, list_lines
from tests.field.situation import Situation

SITUATION = Situation(
    kind="A",
    dumps=[
        [
            build_node("a", 8, allocatable={"nvidia.com/gpu": "7"}),
            build_pod("train", "a", gpus=5),
        ]
    ],
    lines=[
        line
        for k in range(8)
        for line in list_lines(
            f"GPU-{k}",
            "a",
            gpu=k,
            values=BUSY if k < 5 else FREE,
            pod="train" if k < 5 else "",
            namespace="ml" if k < 5 else "",
        )
    ],
    hours={"state": {"productive": 30.0, "unavailable": 6.0, "free": 12.0}},
)
