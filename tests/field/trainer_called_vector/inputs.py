"""The main container has the name of a log shipper; its twin has a log shipper."""

from dataclasses import replace

from tests.field.history import scrape_job, scrape_node
from tests.field.site import IDLE
from tests.field.situation import Situation

REST = {**IDLE, "DCGM_FI_DEV_POWER_USAGE": 50.0}

SITUATION = Situation(
    kind="S",
    scrapes=[
        *scrape_node("a", 1),
        *scrape_job("a", REST, model="NVIDIA A30", container="vector", cores={"vector": 6.0}),
    ],
    hours={"state": {"idle": 6.0}},
    tolerance_hours=0.1,
    findings={"ml/train": {"evidence": "suspected", "actionable": False}},
    long=False,
)
TWIN = replace(
    SITUATION,
    long=True,
    scrapes=[
        *scrape_node("a", 1),
        *scrape_job("a", REST, model="NVIDIA A30", cores={"c": 0.01, "vector": 6.0}),
    ],
    findings={"ml/train": {"evidence": "confirmed", "actionable": True}},
)
