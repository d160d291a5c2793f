"""A node with four replicas per GPU in the first dump, and none in the second."""

from tests.field.site import BUSY, FREE, build_node, build_pod, label_instance, list_lines
from tests.field.situation import Situation

SHARED = label_instance("", product="NVIDIA-A10-SHARED", count="2", replicas="4")
WHOLE = label_instance("", product="NVIDIA-A10", count="2")

SITUATION = Situation(
    kind="B",
    dumps=[
        [build_node("a", 8, labels=SHARED)],
        [build_node("a", 2, labels=WHOLE), build_pod("train", "a", gpus=1)],
    ],
    lines=[
        *list_lines("GPU-0", "a", values=BUSY, pod="train", namespace="ml"),
        *list_lines("GPU-1", "a", gpu=1, values=FREE),
    ],
    hours={"state": {"productive": 6.0, "free": 6.0}},
    nodes={"a": {"gpu_count": 2, "gpu_replicas": None, "sharing": "none"}},
)
