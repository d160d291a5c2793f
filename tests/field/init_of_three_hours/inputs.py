"""A pod is Pending for three hours on its node; the twin runs."""

from dataclasses import replace

from tests.field.history import scrape_job, scrape_node
from tests.field.site import IDLE
from tests.field.situation import Situation

REST = {**IDLE, "DCGM_FI_DEV_POWER_USAGE": 50.0}
JOB = scrape_job("a", REST, model="NVIDIA A30", since=3, phase="Pending", born=3)

SITUATION = Situation(
    kind="S",
    scrapes=[*scrape_node("a", 1), *JOB],
    findings={},
)
TWIN = replace(
    SITUATION,
    scrapes=[*scrape_node("a", 1), *scrape_job("a", REST, model="NVIDIA A30", since=3, born=9)],
    findings={"ml/train": {"evidence": "confirmed", "actionable": True}},
)
