"""Forty seconds of work every two hours; its twin is a check of the node that needs no power."""

from dataclasses import replace

from tests.field.history import scrape_job, scrape_node, scrape_peaks
from tests.field.site import IDLE, ago, write_time
from tests.field.situation import Situation

WORK = {
    "DCGM_FI_DEV_GPU_UTIL": 95.0,
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": 0.6,
    "DCGM_FI_DEV_POWER_USAGE": 150.0,
}
CHECK = {"DCGM_FI_DEV_GPU_UTIL": 100.0, "DCGM_FI_PROF_GR_ENGINE_ACTIVE": 0.2}
REST = {**IDLE, "DCGM_FI_DEV_POWER_USAGE": 50.0}
RESTING = scrape_job("a", REST, model="NVIDIA A30", since=12)

SITUATION = Situation(
    kind="S",
    scrapes=[*scrape_node("a", 1, since=12), *scrape_peaks(RESTING, WORK, 7200)],
    since=write_time(ago(12)),
    window_hours=12,
    hours={"state": {"idle": 12.0}},
    tolerance_hours=0.6,
    findings={"ml/train": {"evidence": "confirmed", "actionable": False}},
)
TWIN = replace(
    SITUATION,
    scrapes=[
        *scrape_node("a", 1, since=12),
        *scrape_peaks(RESTING, CHECK, 3600),
    ],
    findings={"ml/train": {"evidence": "confirmed", "actionable": True}},
)
