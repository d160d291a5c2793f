"""Ten shares of two GPUs; the label has the replicas of the first."""

from tests.field.site import build_node, label_instance, list_lines
from tests.field.situation import Situation

LABELS = label_instance("", product="NVIDIA-A10-SHARED", count="2", replicas="2")

SITUATION = Situation(
    kind="A",
    dumps=[[build_node("a", 10, labels=LABELS)]],
    lines=[line for k in (0, 1) for line in list_lines(f"GPU-{k}", "a", gpu=k)],
    hours={"node": {"a": 12.0}},
    nodes={"a": {"gpu_count": 2}},
)
