"""A GPU is free until a pod comes 24 minutes ago; in the twin it came five hours ago."""

from dataclasses import replace

from tests.field.history import Scrape, scrape_gpu, scrape_job, scrape_node
from tests.field.site import IDLE
from tests.field.situation import Situation

REST = {**IDLE, "DCGM_FI_DEV_POWER_USAGE": 50.0}

GPU = {"gpu": "0", "UUID": "GPU-a-0", "Hostname": "a", "modelName": "NVIDIA A30"}


def list_scrapes(came: float) -> list[Scrape]:
    return [
        *scrape_node("a", 1),
        *scrape_gpu(GPU, REST, until=came),
        *scrape_job("a", REST, model="NVIDIA A30", since=came, born=came),
    ]


SITUATION = Situation(
    kind="S",
    scrapes=list_scrapes(0.4),
    hours={"state": {"free": 5.6, "startup": 0.25, "idle": 0.15}},
    tolerance_hours=0.2,
    findings={},
)
TWIN = replace(
    SITUATION,
    scrapes=list_scrapes(5),
    hours={"state": {"free": 1.0, "startup": 0.25, "idle": 4.75}},
    tolerance_hours=0.2,
    findings={"ml/train": {"evidence": "confirmed", "actionable": True}},
)
