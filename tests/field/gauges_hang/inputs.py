"""Two A30s whose readings stand still."""

from tests.field.site import IDLE, build_node, build_pod, list_lines
from tests.field.situation import Situation

VALUES = {name: value for name, value in IDLE.items() if name != "DCGM_FI_DEV_POWER_USAGE"}

SITUATION = Situation(
    kind="G",
    dumps=[[build_node("hangs", 2, provider=""), build_pod("model", "hangs", gpus=2)]],
    lines=[
        line
        for k in range(2)
        for line in list_lines(
            f"GPU-{k}",
            "hangs",
            gpu=k,
            values={**VALUES, "DCGM_FI_DEV_BOARD_POWER_WATTS": 31.0},
            modelName="NVIDIA A30",
            pod="model",
            namespace="ml",
            container="c",
        )
    ],
    hours={"state": {"idle": 12.0}},
    doctor=["2 GPUs are idle or their telemetry is frozen (12 GPU-hours of the newest day)"],
)
