"""Two hours of work, then the same values for four."""

from typing import Any

from tests.field.site import BUSY, build_node, build_pod, list_counter, list_lines
from tests.field.situation import Situation

POWER = {"DCGM_FI_DEV_BOARD_POWER_WATTS": 560.0}
ENERGY = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"
VALUES = {name: value for name, value in BUSY.items() if name != "DCGM_FI_DEV_POWER_USAGE"}
POD: dict[str, Any] = {"pod": "train", "namespace": "ml", "container": "c"}

SITUATION = Situation(
    kind="G",
    dumps=[[build_node("a", 2), build_pod("train", "a", gpus=2)]],
    lines=[
        line
        for k in range(2)
        for line in (
            *list_lines(f"GPU-{k}", "a", gpu=k, values=VALUES | POWER, **POD),
            *list_counter(
                ENERGY, f"GPU-{k}", "a", gpu=k, steps=[168_000_000.0] * 24 + [0.0] * 48, **POD
            ),
        )
    ],
    hours={"state": {"productive": 4.0, "unknown": 8.0}},
    tolerance_hours=0.2,
)
