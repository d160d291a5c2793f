"""A busy instance with utilisation 0."""

from tests.field.site import BUSY, build_node, build_pod, list_lines
from tests.field.situation import Situation

A100 = "NVIDIA A100-SXM4-80GB"
LABELS = {
    "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB",
    "nvidia.com/gpu.count": "1",
    "nvidia.com/mig.strategy": "mixed",
}

SITUATION = Situation(
    kind="G",
    dumps=[
        [
            build_node(
                "a", 0, labels=LABELS, provider="", resources={"nvidia.com/mig-7g.80gb": "1"}
            ),
            build_pod("train", "a", resources={"nvidia.com/mig-7g.80gb": "1"}),
        ]
    ],
    lines=list_lines(
        "GPU-0",
        "a",
        values={**BUSY, "DCGM_FI_DEV_GPU_UTIL": 0.0},
        modelName=A100,
        GPU_I_PROFILE="7g.80gb",
        GPU_I_ID="0",
        pod="train",
        namespace="ml",
    ),
    hours={"team,state": {"ml,productive": 6.0}},
)
