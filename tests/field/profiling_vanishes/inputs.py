"""All activity turns 0 while the power stays; in the twin it falls."""

from dataclasses import replace

from tests.field.history import scrape_job, scrape_node
from tests.field.site import BUSY, IDLE
from tests.field.situation import Situation

REST = {**IDLE, "DCGM_FI_DEV_POWER_USAGE": 50.0}
WORK = {**BUSY, "DCGM_FI_DEV_POWER_USAGE": 150.0}

BLIND = {**REST, "DCGM_FI_DEV_POWER_USAGE": 150.0}
FIRST = [*scrape_node("a", 1), *scrape_job("a", WORK, model="NVIDIA A30", until=3)]

SITUATION = Situation(
    kind="S",
    scrapes=[*FIRST, *scrape_job("a", BLIND, model="NVIDIA A30", since=3, born=9)],
    hours={"state": {"productive": 3.0, "low": 0.0, "idle": 0.0, "unknown": 3.0}},
    tolerance_hours=0.2,
    findings={},
)
TWIN = replace(
    SITUATION,
    scrapes=[*FIRST, *scrape_job("a", REST, model="NVIDIA A30", since=3, born=9)],
    hours={"state": {"productive": 3.0, "idle": 3.0}},
    findings={"ml/train": {"evidence": "confirmed", "actionable": True}},
)
