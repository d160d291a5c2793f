"""A GPU that reports 0 W and no energy; its twin has a sensor."""

from dataclasses import replace

from tests.field.history import scrape_job, scrape_node
from tests.field.site import IDLE
from tests.field.situation import Situation

REST = {**IDLE, "DCGM_FI_DEV_POWER_USAGE": 28.0}
NONE = [
    replace(one, noise=False)
    for one in scrape_job("a", {**IDLE, "DCGM_FI_DEV_POWER_USAGE": 0.0}, model="Tesla T4")
]

SITUATION = Situation(
    kind="S",
    scrapes=[*scrape_node("a", 1), *NONE],
    hours={"state": {"idle": 6.0}},
    tolerance_hours=0.1,
    findings={"ml/train": {"evidence": "confirmed", "actionable": False}},
)
TWIN = replace(
    SITUATION,
    scrapes=[*scrape_node("a", 1), *scrape_job("a", REST, model="Tesla T4")],
    findings={"ml/train": {"evidence": "confirmed", "actionable": True}},
)
