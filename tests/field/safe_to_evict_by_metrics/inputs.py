"""cluster-autoscaler.kubernetes.io/safe-to-evict , and a twin without it."""

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
            annotations={"cluster_autoscaler_kubernetes_io_safe_to_evict": "false"},
        ),
    ],
    hours={"state": {"idle": 6.0}},
    tolerance_hours=0.1,
    findings={"ml/train": {"actionable": False}},
)
TWIN = replace(
    SITUATION,
    scrapes=[
        *scrape_node("a", 1),
        *scrape_job(
            "a",
            REST,
            model="NVIDIA A30",
            annotations={"cluster_autoscaler_kubernetes_io_safe_to_evict": "true"},
        ),
    ],
    findings={"ml/train": {"evidence": "confirmed", "actionable": True}},
)
