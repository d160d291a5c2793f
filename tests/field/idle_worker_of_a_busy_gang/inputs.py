"""Two pods of one job, of which one works; in the twin neither."""

from dataclasses import replace

from tests.field.history import scrape_job, scrape_node
from tests.field.site import BUSY, IDLE
from tests.field.situation import Situation

REST = {**IDLE, "DCGM_FI_DEV_POWER_USAGE": 50.0}
WORK = {**BUSY, "DCGM_FI_DEV_POWER_USAGE": 150.0}

SITUATION = Situation(
    kind="S",
    scrapes=[
        *scrape_node("a", 2),
        *scrape_job("a", WORK, model="NVIDIA A30"),
        *scrape_job("a", REST, model="NVIDIA A30", pod="train-1", first=1),
    ],
    hours={"state": {"productive": 6.0, "idle": 6.0}},
    tolerance_hours=0.1,
    findings={"ml/train": {"kind": "over_allocated_ranks", "actionable": False}},
)
TWIN = replace(
    SITUATION,
    scrapes=[
        *scrape_node("a", 2),
        *scrape_job("a", REST, model="NVIDIA A30"),
        *scrape_job("a", REST, model="NVIDIA A30", pod="train-1", first=1),
    ],
    hours={"state": {"idle": 12.0}},
    findings={"ml/train": {"kind": "idle_job", "actionable": True}},
)
