"""A pod whose GPU works and whose CPU rests; its twin is the reverse."""

from dataclasses import replace

from tests.field.history import scrape_job, scrape_node
from tests.field.site import BUSY, IDLE
from tests.field.situation import Situation

REST = {**IDLE, "DCGM_FI_DEV_POWER_USAGE": 50.0}
WORK = {**BUSY, "DCGM_FI_DEV_POWER_USAGE": 150.0}

SITUATION = Situation(
    kind="S",
    scrapes=[*scrape_node("a", 1), *scrape_job("a", WORK, model="NVIDIA A30")],
    hours={"state": {"productive": 6.0}},
    tolerance_hours=0.1,
    findings={},
)
TWIN = replace(
    SITUATION,
    scrapes=[*scrape_node("a", 1), *scrape_job("a", REST, model="NVIDIA A30", cores={"c": 8.0})],
    hours={"state": {"idle": 6.0}},
    findings={"ml/train": {"actionable": False}},
)
