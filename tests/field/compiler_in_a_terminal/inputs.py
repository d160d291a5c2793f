"""A code server without kernels whose user compiles; in the twin nobody does."""

from dataclasses import replace

from tests.field.history import scrape_job, scrape_node
from tests.field.site import IDLE, ago, write_time
from tests.field.situation import Situation

REST = {**IDLE, "DCGM_FI_DEV_POWER_USAGE": 50.0}

SITUATION = Situation(
    kind="S",
    scrapes=[
        *scrape_node("a", 1, since=12),
        *scrape_job(
            "a",
            REST,
            model="NVIDIA A30",
            pod="code-0",
            owner=("StatefulSet", "code"),
            labels={"notebook_name": "code"},
            cores={"c": 4.0},
            since=12,
        ),
    ],
    since=write_time(ago(12)),
    window_hours=12,
    findings={"ml/code": {"kind": "idle_notebook", "actionable": False, "evidence": "suspected"}},
)
TWIN = replace(
    SITUATION,
    scrapes=[
        *scrape_node("a", 1, since=12),
        *scrape_job(
            "a",
            REST,
            model="NVIDIA A30",
            pod="code-0",
            owner=("StatefulSet", "code"),
            labels={"notebook_name": "code"},
            since=12,
        ),
    ],
    findings={"ml/code": {"kind": "idle_notebook", "evidence": "confirmed", "actionable": True}},
)
