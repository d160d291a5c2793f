"""A Tesla M60 of two boards."""

from tests.field.site import BUSY, IDLE, build_node, build_pod, list_lines
from tests.field.situation import Situation

KEYS = ("DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_FREE")

SITUATION = Situation(
    kind="G",
    dumps=[[build_node("a", 2, provider=""), build_pod("train", "a", gpus=2)]],
    lines=[
        line
        for k, values in enumerate((BUSY, IDLE))
        for line in list_lines(
            f"GPU-{k}",
            "a",
            gpu=k,
            values={key: values[key] for key in KEYS},
            modelName="Tesla M60",
            pod="train",
            namespace="ml",
        )
    ],
    hours={"team": {"ml": 12.0}, "state": {"productive": 6.0, "idle": 6.0}},
)
