"""A pod of a Job of a JobSet; the twin is of a Job alone."""

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
            owner=("Job", "train-workers-0"),
            labels={"jobset_sigs_k8s_io_jobset_name": "train"},
        ),
    ],
    pods={"train-0": {"workload_kind": "JobSet", "workload": "train"}},
)
TWIN = replace(
    SITUATION,
    scrapes=[
        *scrape_node("a", 1),
        *scrape_job(
            "a", REST, model="NVIDIA A30", owner=("Job", "train-workers-0"), labels={"app": "x"}
        ),
    ],
    pods={"train-0": {"workload_kind": "Job", "workload": "train-workers-0"}},
)
