"""An instance whose SM activity is 1.02."""

from tests.field.site import list_lines
from tests.field.situation import Situation

A100 = "NVIDIA A100-SXM4-80GB"
VALUES = {
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": 1.02,
    "DCGM_FI_PROF_SM_ACTIVE": 1.02,
    "DCGM_FI_PROF_DRAM_ACTIVE": 1.3,
    "DCGM_FI_DEV_POWER_USAGE": 300.0,
    "DCGM_FI_DEV_FB_USED": 30000.0,
}
MOST = "select cluster, max(sm_active) as sm, max(gr_engine_active) as gr from sample group by 1"

SITUATION = Situation(
    kind="G",
    lines=list_lines(
        "GPU-0", "a", values=VALUES, modelName=A100, GPU_I_PROFILE="7g.80gb", GPU_I_ID="0"
    ),
    hours={"cluster": {"activity_above_one": 6.0}},
    answers={
        MOST: [{"sm": 1.0, "gr": 1.0}],
        "select cluster, clipped, rejected from scrape": [{"clipped": 144, "rejected": 72}],
    },
    doctor=["exposition of activity_above_one 72 refused, 144 clipped of 360"],
    long=False,
)
