"""The container with the GPU is called envoy, beside a fluent-bit; in the twin envoy is beside."""

from dataclasses import replace

from tests.field.history import scrape_job, scrape_node
from tests.field.site import IDLE
from tests.field.situation import Situation

REST = {**IDLE, "DCGM_FI_DEV_POWER_USAGE": 50.0}

SITUATION = Situation(
    kind="S",
    scrapes=[
        *scrape_node("a", 1),
        *scrape_job(
            "a",
            REST,
            model="NVIDIA A30",
            container="envoy",
            cores={"envoy": 5.0, "fluent-bit": 0.1},
        ),
    ],
    findings={"ml/train": {"evidence": "suspected", "actionable": False}},
)
TWIN = replace(
    SITUATION,
    scrapes=[
        *scrape_node("a", 1),
        *scrape_job("a", REST, model="NVIDIA A30", cores={"c": 0.01, "envoy": 5.0}),
    ],
    findings={"ml/train": {"evidence": "confirmed", "actionable": True}},
)
