"""Fourteen sevenths under the name of whole GPUs."""

from tests.field.site import build_node
from tests.field.situation import Situation

LABELS = {
    "nvidia.com/gpu.product": "NVIDIA-A100-PCIE-40GB-MIG-1g.5gb",
    "nvidia.com/gpu.count": "14",
    "nvidia.com/mig.strategy": "single",
}

SITUATION = Situation(
    kind="A",
    dumps=[
        [build_node("a", 14, labels=LABELS, provider="", resources={"nvidia.com/mig-1g.5gb": "0"})]
    ],
    nodes={"a": {"gpu_count": 2}},
)
