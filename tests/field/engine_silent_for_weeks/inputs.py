"""Profiling says 0 and utilisation 99."""

from tests.field.site import BUSY, list_lines
from tests.field.situation import Situation

VALUES = {**BUSY, "DCGM_FI_DEV_GPU_UTIL": 99.0, "DCGM_FI_PROF_GR_ENGINE_ACTIVE": 0.0}

SITUATION = Situation(
    kind="A",
    lines=list_lines("GPU-0", "a", values=VALUES, pod="train", namespace="ml"),
    hours={"state": {"unknown": 6.0}},
)
