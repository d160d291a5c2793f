"""Six GPUs cut alike and two whole ones."""

from tests.field.site import build_node
from tests.field.situation import Situation

LABELS = {
    "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB",
    "nvidia.com/gpu.count": "8",
    "nvidia.com/mig.strategy": "mixed",
}

SITUATION = Situation(
    kind="A",
    dumps=[
        [
            build_node(
                "a",
                2,
                labels=LABELS,
                provider="",
                resources={
                    "nvidia.com/mig-1g.10gb": "12",
                    "nvidia.com/mig-2g.20gb": "6",
                    "nvidia.com/mig-3g.40gb": "6",
                },
            )
        ]
    ],
    nodes={"a": {"gpu_count": 8}},
)
