"""A run that reads 0 at two of three minutes; its twin never works."""

from dataclasses import replace

from tests.field.history import scrape_job, scrape_node, scrape_peaks
from tests.field.site import IDLE
from tests.field.situation import Situation

REST = {**IDLE, "DCGM_FI_DEV_POWER_USAGE": 50.0}
JOB = scrape_job("a", REST, model="NVIDIA A30")

SITUATION = Situation(
    kind="S",
    scrapes=[
        *scrape_node("a", 1),
        *scrape_peaks(
            JOB,
            {
                "DCGM_FI_DEV_GPU_UTIL": 90.0,
                "DCGM_FI_PROF_GR_ENGINE_ACTIVE": 0.8,
                "DCGM_FI_DEV_POWER_USAGE": 140.0,
            },
            180,
        ),
    ],
    hours={"state": {"low": 4.0, "productive": 2.0}},
    tolerance_hours=0.3,
    findings={},
)
TWIN = replace(
    SITUATION,
    scrapes=[
        *scrape_node("a", 1),
        *scrape_peaks(
            JOB, {"DCGM_FI_DEV_GPU_UTIL": 3.0, "DCGM_FI_PROF_GR_ENGINE_ACTIVE": 0.03}, 180
        ),
    ],
    hours={"state": {"idle": 6.0}},
    findings={"ml/train": {"evidence": "confirmed", "actionable": True}},
)
