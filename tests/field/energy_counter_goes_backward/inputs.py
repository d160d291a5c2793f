"""An H100 whose energy counter falls now and then."""

from typing import Any

from tests.field.site import build_node, build_pod, list_counter, list_lines
from tests.field.situation import Situation

POD: dict[str, Any] = {"pod": "train", "namespace": "ml", "container": "c"}
ENERGY = (
    "select cluster, min(energy_mj) >= 0 as rises, sum(energy_mj) / 3.6e9 <= 4.2 as possible"
    " from rollup_5m group by all"
)

SITUATION = Situation(
    kind="G",
    dumps=[[build_node("a", 1), build_pod("train", "a", gpus=1)]],
    lines=[
        *list_lines("GPU-0", "a", **POD),
        *list_counter(
            "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
            "GPU-0",
            "a",
            steps=[168e6, 168e6, -1e6] * 24,
            start=71_263_443_990.0,
            **POD,
        ),
    ],
    hours={"state": {"productive": 6.0}},
    answers={ENERGY: [{"rises": True, "possible": True}]},
)
