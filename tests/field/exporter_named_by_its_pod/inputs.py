"""Series whose host is a pod."""

from tests.field.site import build_node, build_pod, list_lines
from tests.field.situation import Situation

SITUATION = Situation(
    kind="H",
    dumps=[
        [
            build_node("a", 2),
            build_pod("dcgm-exporter-lcxpl", "a", namespace="monitoring"),
            build_pod("train", "a", gpus=2),
        ]
    ],
    lines=[
        line
        for k in (0, 1)
        for line in list_lines(
            f"GPU-{k}", "dcgm-exporter-lcxpl", gpu=k, pod="train", namespace="ml"
        )
    ],
    hours={"node": {"a": 12.0}},
)
