"""Three ranks wait for the fourth."""

from tests.field.site import IDLE, build_node, build_pod, list_lines
from tests.field.situation import Situation

GPU, POWER = "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_POWER_USAGE"
FIELDS = {name: value for name, value in IDLE.items() if "PROF" not in name}
SPIN = {**FIELDS, GPU: 100.0, POWER: 95.0}
REST = {**FIELDS, GPU: 0.0, POWER: 62.0}

SITUATION = Situation(
    kind="G",
    dumps=[[build_node("a", 4), build_pod("qwen", "a", gpus=4)]],
    lines=[
        line
        for k, values in enumerate((SPIN, SPIN, SPIN, REST))
        for line in list_lines(
            f"GPU-{k}",
            "a",
            gpu=k,
            values=values,
            modelName="NVIDIA A100-SXM4-80GB",
            pod="qwen",
            namespace="ml",
            container="c",
        )
    ],
    hours={"state": {"low": 18.0, "idle": 6.0}},
)
