"""karpenter.sh/do-not-disrupt , and a twin without it."""

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
            "a", REST, model="NVIDIA A30", annotations={"karpenter_sh_do_not_disrupt": "true"}
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
        *scrape_job("a", REST, model="NVIDIA A30", annotations={"example_com_note": "true"}),
    ],
    findings={"ml/train": {"evidence": "confirmed", "actionable": True}},
)
