"""Two pods of a job, one on a node without an exporter; the twin has both."""

from dataclasses import replace

from tests.field.history import scrape_job, scrape_node
from tests.field.site import IDLE
from tests.field.situation import Situation

REST = {**IDLE, "DCGM_FI_DEV_POWER_USAGE": 50.0}

FIRST = [
    *scrape_node("a", 1),
    *scrape_job("a", REST, model="NVIDIA A30"),
    *scrape_node("b", 1, address="10.0.0.2"),
]
SECOND = scrape_job("b", REST, model="NVIDIA A30", pod="train-1")

SITUATION = Situation(
    kind="S",
    scrapes=[*FIRST, *(one for one in SECOND if not one.name.startswith("DCGM"))],
    findings={"ml/train": {"evidence": "suspected", "actionable": False}},
)
TWIN = replace(
    SITUATION,
    scrapes=[*FIRST, *SECOND],
    findings={"ml/train": {"evidence": "confirmed", "actionable": True}},
)
