"""A busy GPU whose utilisation is impossible once an hour."""

from tests.field.site import BUSY, STEP, ago, list_lines
from tests.field.situation import Situation

UTIL = "DCGM_FI_DEV_GPU_UTIL"
TIMES = [int((ago(6) + STEP * k).timestamp() * 1000) for k in range(0, 72, 12)]


def _spoil(line: str) -> str:
    head, _, at = line.rpartition(" ")
    if line.startswith(UTIL) and int(at) in TIMES:
        return f"{head.rpartition(' ')[0]} 4294967295 {at}"
    return line


SITUATION = Situation(
    kind="G",
    lines=[_spoil(line) for line in list_lines("GPU-0", "a", values=BUSY)],
    hours={"state": {"productive": 6.0}},
    answers={"select cluster, rejected from scrape": [{"rejected": 6}]},
    doctor=["6 refused, 0 clipped of 360"],
)
