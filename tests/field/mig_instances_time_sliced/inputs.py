"""Seven instances with four shares each."""

from tests.field.site import build_node, build_pod, list_lines
from tests.field.situation import Situation

A100 = "NVIDIA A100-SXM4-40GB"
SHARED = "nvidia.com/mig-1g.5gb.shared"
LABELS = {
    "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB",
    "nvidia.com/gpu.count": "1",
    "nvidia.com/mig.strategy": "mixed",
    "nvidia.com/mig-1g.5gb.count": "7",
    "nvidia.com/mig-1g.5gb.replicas": "4",
    "nvidia.com/mig-1g.5gb.sharing-strategy": "time-slicing",
}

SITUATION = Situation(
    kind="E",
    dumps=[
        [
            build_node(
                "a", 0, labels=LABELS, resources={"nvidia.com/mig-1g.5gb": "0", SHARED: "28"}
            ),
            *(build_pod(f"nb-{k}", "a", resources={SHARED: "1"}) for k in range(4)),
        ]
    ],
    lines=[
        line
        for k in range(7)
        for line in list_lines(
            "GPU-a100", "a", modelName=A100, GPU_I_PROFILE="1g.5gb", GPU_I_ID=str(7 + k)
        )
    ],
    hours={"node": {"a": 6.0}},
    nodes={"a": {"gpu_count": 1}},
    pods={f"nb-{k}": {"gpu_request": 1 / 28} for k in range(4)},
)
