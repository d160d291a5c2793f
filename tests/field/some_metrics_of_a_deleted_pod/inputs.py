"""Requests of a pod outlive it by three hours; in the twin it lives."""

from dataclasses import replace

from tests.field.history import scrape_gpu, scrape_node, scrape_pod
from tests.field.site import BUSY, IDLE
from tests.field.situation import Situation

REST = {**IDLE, "DCGM_FI_DEV_POWER_USAGE": 50.0}
WORK = {**BUSY, "DCGM_FI_DEV_POWER_USAGE": 150.0}

GPU = {"gpu": "0", "UUID": "GPU-0", "Hostname": "a", "modelName": "NVIDIA A30"}
NAMED = {**GPU, "pod": "train-0", "namespace": "ml", "container": "c"}
REQUESTS = [one for one in scrape_pod("train-0", "a") if "resource" in one.name]

SITUATION = Situation(
    kind="S",
    scrapes=[
        *scrape_node("a", 1),
        *scrape_pod("train-0", "a", until=3),
        *[replace(one, since=3) for one in REQUESTS],
        *scrape_gpu(NAMED, WORK, until=3),
        *scrape_gpu(GPU, REST, since=3),
    ],
    hours={"state": {"productive": 3.0, "free": 3.0}},
    tolerance_hours=0.3,
    findings={},
)
TWIN = replace(
    SITUATION,
    scrapes=[
        *scrape_node("a", 1),
        *scrape_pod("train-0", "a"),
        *scrape_gpu(NAMED, WORK, until=3),
        *scrape_gpu(NAMED, REST, since=3),
    ],
    hours={"state": {"productive": 3.0, "idle": 3.0}},
    findings={"ml/train": {"actionable": False}},
)
