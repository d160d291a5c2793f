"""A rank waits for a pod that finds no node; in the twin both run."""

from dataclasses import replace

from tests.field.history import scrape_job, scrape_node, scrape_pod
from tests.field.site import IDLE
from tests.field.situation import Situation

REST = {**IDLE, "DCGM_FI_DEV_POWER_USAGE": 50.0}

SITUATION = Situation(
    kind="S",
    scrapes=[
        *scrape_node("a", 1),
        *scrape_job("a", REST, model="NVIDIA A30"),
        *scrape_pod("train-1", "", phase="Pending", born=5, since=5),
    ],
    findings={"ml/train": {"evidence": "suspected", "actionable": False}},
)
TWIN = replace(
    SITUATION,
    scrapes=[
        *scrape_node("a", 2),
        *scrape_job("a", REST, model="NVIDIA A30"),
        *scrape_job("a", REST, model="NVIDIA A30", pod="train-1", first=1),
    ],
    findings={"ml/train": {"evidence": "confirmed", "actionable": True}},
)
