"""A node is NotReady since two hours; in its twin ten hours ago."""

from dataclasses import replace

from tests.field.history import scrape_job, scrape_node
from tests.field.site import IDLE, ago, write_time
from tests.field.situation import Situation

REST = {**IDLE, "DCGM_FI_DEV_POWER_USAGE": 50.0}
JOB = scrape_job("a", REST, model="NVIDIA A30", since=12)

SITUATION = Situation(
    kind="S",
    scrapes=[
        *scrape_node("a", 1, since=12, until=2),
        *scrape_node("a", 1, since=2, ready="unknown"),
        *JOB,
    ],
    since=write_time(ago(12)),
    window_hours=12,
    findings={},
    long=False,
)
TWIN = replace(
    SITUATION,
    long=True,
    scrapes=[
        *scrape_node("a", 1, since=12, until=10),
        *scrape_node("a", 1, since=10, until=8, ready="false"),
        *scrape_node("a", 1, since=8),
        *JOB,
    ],
    findings={"ml/train": {"evidence": "confirmed", "actionable": True}},
)
