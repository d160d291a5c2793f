"""One GPU offered twelve times."""

from tests.field.site import build_node, label_instance, list_lines
from tests.field.situation import Situation

LABELS = label_instance("g5.2xlarge", product="NVIDIA-A10G-SHARED", replicas="12")

SITUATION = Situation(
    kind="E",
    dumps=[[build_node("a", 12, labels=LABELS)]],
    lines=list_lines("GPU-0", "a", modelName="NVIDIA A10G"),
    hours={"node": {"a": 6.0}},
    nodes={"a": {"gpu_count": 1, "gpu_replicas": 12}},
)
