"""A model in memory on one A40, nothing on the other."""

from tests.field.site import FREE, IDLE, build_node, build_pod, list_lines
from tests.field.situation import Situation

SITUATION = Situation(
    kind="G",
    dumps=[[build_node("a", 2, provider=""), build_pod("model", "a", gpus=1)]],
    lines=[
        *list_lines(
            "GPU-0",
            "a",
            values={**IDLE, "DCGM_FI_DEV_POWER_USAGE": 110.0},
            modelName="NVIDIA A40",
            pod="model",
            namespace="ml",
            container="c",
        ),
        *list_lines(
            "GPU-1",
            "a",
            gpu=1,
            values={**FREE, "DCGM_FI_DEV_POWER_USAGE": 30.0},
            modelName="NVIDIA A40",
        ),
    ],
    hours={"state": {"idle": 6.0, "free": 6.0}},
)
