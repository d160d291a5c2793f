"""A whole fleet works lightly; its twin idles at more power than its model is known for."""

from tests.field.history import scrape_job, scrape_node
from tests.field.site import IDLE
from tests.field.situation import Situation

WORK = {**IDLE, "DCGM_FI_DEV_GPU_UTIL": 3.0, "DCGM_FI_PROF_GR_ENGINE_ACTIVE": 0.03}

SITUATION = Situation(
    kind="S",
    scrapes=[
        *scrape_node("a", 2),
        *scrape_job("a", {**WORK, "DCGM_FI_DEV_POWER_USAGE": 140.0}, model="NVIDIA L40S", gpus=2),
    ],
    hours={"state": {"low": 12.0}},
    tolerance_hours=0.1,
    findings={},
    long=False,
)
TWIN = Situation(
    kind="S",
    scrapes=[
        *scrape_node("a", 1),
        *scrape_job("a", {**IDLE, "DCGM_FI_DEV_POWER_USAGE": 80.0}, model="NVIDIA A10G"),
    ],
    hours={"state": {"low": 3.0, "idle": 3.0}},
    tolerance_hours=0.1,
    findings={"ml/train": {"evidence": "confirmed", "actionable": True}},
)
