"""GR_ENGINE_ACTIVE is 0 while GPU_UTIL is 99; in the twin both are."""

from dataclasses import replace

from tests.field.history import scrape_job, scrape_node
from tests.field.site import IDLE
from tests.field.situation import Situation

REST = {**IDLE, "DCGM_FI_DEV_POWER_USAGE": 50.0}

SITUATION = Situation(
    kind="S",
    scrapes=[
        *scrape_node("a", 1),
        *scrape_job(
            "a",
            {**REST, "DCGM_FI_DEV_GPU_UTIL": 99.0, "DCGM_FI_DEV_POWER_USAGE": 150.0},
            model="NVIDIA A30",
        ),
    ],
    hours={"state": {"unknown": 6.0}},
    tolerance_hours=0.1,
    findings={},
)
TWIN = replace(
    SITUATION,
    scrapes=[*scrape_node("a", 1), *scrape_job("a", REST, model="NVIDIA A30")],
    hours={"state": {"idle": 6.0}},
    findings={"ml/train": {"evidence": "confirmed", "actionable": True}},
)
