"""Two hours of work and ten hours of rest; the twin works again."""

from dataclasses import replace

from tests.field.history import scrape_job, scrape_node
from tests.field.site import BUSY, IDLE, ago, write_time
from tests.field.situation import Situation

REST = {**IDLE, "DCGM_FI_DEV_POWER_USAGE": 50.0}
WORK = {**BUSY, "DCGM_FI_DEV_POWER_USAGE": 150.0}

NODE = scrape_node("a", 1, since=12)
FIRST = scrape_job("a", WORK, model="NVIDIA A30", since=12, until=10)

SITUATION = Situation(
    kind="S",
    scrapes=[*NODE, *FIRST, *scrape_job("a", REST, model="NVIDIA A30", since=10, born=14)],
    since=write_time(ago(12)),
    window_hours=12,
    hours={"state": {"productive": 2.0, "idle": 10.0}},
    tolerance_hours=0.2,
    findings={"ml/train": {"evidence": "confirmed", "actionable": True}},
)
TWIN = replace(
    SITUATION,
    scrapes=[
        *NODE,
        *FIRST,
        *scrape_job("a", REST, model="NVIDIA A30", since=10, until=0.5, born=14),
        *scrape_job("a", WORK, model="NVIDIA A30", since=0.5, born=14),
    ],
    hours={"state": {"productive": 2.5, "idle": 9.5}},
    findings={"ml/train": {"evidence": "confirmed", "gpu_hours": 9.5}},
)
