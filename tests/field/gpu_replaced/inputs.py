"""Slot 0 has one GPU until three hours ago and another from two hours ago."""

from tests.field.site import FREE, build_node, build_pod, label_instance, list_lines
from tests.field.situation import Situation

LABELS = label_instance("p5.48xlarge", product="NVIDIA-H100-80GB-HBM3", count="8")

SITUATION = Situation(
    kind="A",
    dumps=[[build_node("a", 8, labels=LABELS), build_pod("train", "a", gpus=7)]],
    lines=[
        *(
            line
            for k in range(1, 8)
            for line in list_lines(f"GPU-{k}", "a", gpu=k, pod="train", namespace="ml")
        ),
        *list_lines("GPU-old", "a", values=FREE, until=3),
        *list_lines("GPU-new", "a", values=FREE, since=2),
    ],
    hours={"node": {"a": 48.0}},
    dollars={"node": {"a": 330.24}},
    tolerance_hours=0.25,
)
