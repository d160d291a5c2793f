"""The exporter of an idle node is silent since three hours; its twin's is not."""

from dataclasses import replace

from tests.field.history import Scrape, scrape_job, scrape_node
from tests.field.site import IDLE, ago, write_time
from tests.field.situation import Situation

REST = {**IDLE, "DCGM_FI_DEV_POWER_USAGE": 50.0}


def list_scrapes(until: float) -> list[Scrape]:
    job = scrape_job("a", REST, model="NVIDIA A30", since=12)
    return [
        *scrape_node("a", 1, since=12),
        *(replace(one, until=until) if one.name.startswith("DCGM") else one for one in job),
    ]


SITUATION = Situation(
    kind="S",
    scrapes=list_scrapes(3),
    since=write_time(ago(12)),
    window_hours=12,
    hours={"state": {"idle": 9.0, "unknown": 3.0}},
    tolerance_hours=0.3,
    findings={"ml/train": {"evidence": "confirmed", "gpu_hours": 9.0}},
)
TWIN = replace(
    SITUATION,
    scrapes=list_scrapes(0),
    hours={"state": {"idle": 12.0}},
    findings={"ml/train": {"evidence": "confirmed", "actionable": True}},
)
