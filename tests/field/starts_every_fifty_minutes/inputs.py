"""A job whose pod is another one every fifty minutes; its twin has one."""

from dataclasses import replace

from tests.field.history import scrape_job, scrape_node
from tests.field.site import IDLE
from tests.field.situation import Situation

REST = {**IDLE, "DCGM_FI_DEV_POWER_USAGE": 50.0}

SITUATION = Situation(
    kind="S",
    scrapes=[
        *scrape_node("a", 1),
        *(
            one
            for k in range(7)
            for one in scrape_job(
                "a",
                REST,
                model="NVIDIA A30",
                pod=f"train-{k}",
                since=6 - k * 5 / 6,
                until=max(0.0, 6 - (k + 1) * 5 / 6),
                born=6 - k * 5 / 6,
            )
        ),
    ],
    findings={},
)
TWIN = replace(
    SITUATION,
    scrapes=[*scrape_node("a", 1), *scrape_job("a", REST, model="NVIDIA A30")],
    findings={"ml/train": {"evidence": "confirmed", "actionable": True}},
)
