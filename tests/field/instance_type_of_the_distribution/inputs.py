"""A node of RKE2 with one H100."""

from tests.field.site import build_node, label_instance, list_lines
from tests.field.situation import Situation

LABELS = label_instance("rke2", product="NVIDIA-H100-80GB-HBM3", count="1")

SITUATION = Situation(
    kind="A",
    dumps=[[build_node("a", 1, labels=LABELS, provider="rke2://")]],
    lines=list_lines("GPU-0", "a"),
    hours={"node": {"a": 6.0}},
    dollars={"node": {"a": 41.28}},
)
