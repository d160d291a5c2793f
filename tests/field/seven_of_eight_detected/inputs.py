"""Seven GPUs in a p5.48xlarge."""

from tests.field.site import build_node, label_instance
from tests.field.situation import Situation

LABELS = label_instance("p5.48xlarge", product="NVIDIA-H100-80GB-HBM3", count="7")

SITUATION = Situation(
    kind="A",
    dumps=[[build_node("a", 7, labels=LABELS)]],
    nodes={"a": {"gpu_count": 7, "gpu_allocatable": 7}},
    doctor=["says 8"],
)
