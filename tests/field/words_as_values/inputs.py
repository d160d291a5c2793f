"""Two lines without a number among honest ones."""

from tests.field.site import list_lines
from tests.field.situation import Situation

COUNTS = "select cluster, count(gpu_util_pct) as n from sample group by cluster"
LABELS = 'gpu="0",UUID="GPU-0",Hostname="a"'

SITUATION = Situation(
    kind="G",
    lines=[
        f"DCGM_FI_DEV_COMPUTE_PIDS{{{LABELS}}} ERROR - FAILED TO CONVERT TO STRING",
        f"DCGM_FI_DEV_FAN_SPEED{{{LABELS}}} N/A",
        *list_lines("GPU-0", "a"),
    ],
    answers={COUNTS: [{"n": 72}]},
)
