"""An idle node is lost two hours ago; its twin is not."""

from dataclasses import replace

from tests.field.history import scrape_job, scrape_node, scrape_pod
from tests.field.site import IDLE
from tests.field.situation import Situation

REST = {**IDLE, "DCGM_FI_DEV_POWER_USAGE": 50.0}

SITUATION = Situation(
    kind="S",
    scrapes=[
        *scrape_node("a", 1, until=2),
        *scrape_node("a", 1, since=2, ready="unknown"),
        *scrape_pod("train-0", "a"),
        *(
            one
            for one in scrape_job("a", REST, model="NVIDIA A30", until=2)
            if not one.name.startswith("kube_")
        ),
    ],
    findings={"ml/train": {"evidence": "confirmed", "gpu_hours": 4.0}},
)
TWIN = replace(
    SITUATION,
    scrapes=[*scrape_node("a", 1), *scrape_job("a", REST, model="NVIDIA A30")],
    findings={"ml/train": {"evidence": "confirmed", "actionable": True}},
)
