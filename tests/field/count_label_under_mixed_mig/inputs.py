"""Six whole GPUs and two in sevenths."""

from tests.field.site import build_node
from tests.field.situation import Situation

LABELS = {
    "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
    "nvidia.com/gpu.count": "8",
    "nvidia.com/mig.strategy": "mixed",
}

SITUATION = Situation(
    kind="A",
    dumps=[
        [build_node("a", 6, labels=LABELS, provider="", resources={"nvidia.com/mig-1g.10gb": "14"})]
    ],
    nodes={"a": {"gpu_count": 8}},
)
