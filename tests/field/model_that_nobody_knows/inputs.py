"""A GPU whose model has no figures; its twin's has."""

from dataclasses import replace

from tests.field.history import scrape_job, scrape_node
from tests.field.site import IDLE
from tests.field.situation import Situation

REST = {**IDLE, "DCGM_FI_DEV_POWER_USAGE": 50.0}

SITUATION = Situation(
    kind="S",
    scrapes=[*scrape_node("a", 1), *scrape_job("a", REST, model="NVIDIA Q9000-Z")],
    hours={"state": {"idle": 6.0}},
    tolerance_hours=0.1,
    findings={"ml/train": {"actionable": False}},
)
TWIN = replace(
    SITUATION,
    scrapes=[*scrape_node("a", 1), *scrape_job("a", REST, model="NVIDIA A30")],
    findings={"ml/train": {"evidence": "confirmed", "actionable": True}},
)
