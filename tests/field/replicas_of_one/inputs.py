"""Fifty shares of one A10G, which GFD labels as one replica."""

from tests.field.site import build_node, build_pod, label_instance, list_lines
from tests.field.situation import Situation

LABELS = label_instance("g5.xlarge", product="NVIDIA-A10G", count="1", replicas="1")

SITUATION = Situation(
    kind="A",
    dumps=[
        [
            build_node("a", 0, labels=LABELS, resources={"nvidia.com/gpu.shared": "50"}),
            *(build_pod(f"app-{k}", "a", resources={"nvidia.com/gpu.shared": "1"}) for k in (0, 1)),
        ]
    ],
    lines=list_lines("GPU-a10g", "a", modelName="NVIDIA A10G"),
    hours={"node": {"a": 6.0}},
    dollars={"node": {"a": 6.036}},
    nodes={"a": {"gpu_count": 1}},
    pods={"app-0": {"gpu_request": 0.02}, "app-1": {"gpu_request": 0.02}},
)
