"""Sixteen instances under two names."""

from tests.field.site import build_node
from tests.field.situation import Situation

LABELS = {
    "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB",
    "nvidia.com/mig-3g.21gb.count": "16",
    "nvidia.com/mig-3g.21gb.memory": "20096",
    "nvidia.com/mig-3g.21gb.slices.gi": "3",
    "nvidia.com/mig.strategy": "mixed",
}

SITUATION = Situation(
    kind="A",
    dumps=[
        [
            build_node(
                "a100-node6",
                0,
                labels=LABELS,
                provider="",
                resources={"nvidia.com/mig-3g.20gb": "16"},
            )
        ]
    ],
    nodes={"a100-node6": {"gpu_count": 8}},
)
