"""A log of nvidia-smi with three columns of power."""

from tests.field.site import STEP, ago
from tests.field.situation import Situation, Table

HEAD = (
    "timestamp, uuid, utilization.gpu [%], power.draw [W], power.draw.average [W],"
    " power.draw.instant [W]"
)
COLUMNS = (
    "workload=uuid,device=uuid,ts=timestamp,"
    "gpu_util_pct=utilization.gpu [%],power_w=power.draw.instant [W]"
)
ROWS = [
    f"{ago(6) + STEP * k:%Y/%m/%d %H:%M:%S}.123, GPU-0, 97 %, [N/A], {300 + k % 3}.10 W,"
    f" {301 + k % 5}.44 W"
    for k in range(72)
]

SITUATION = Situation(
    kind="I",
    tables=[Table("\n".join([HEAD, *ROWS, ""]), COLUMNS)],
    hours={"state": {"productive": 6.0}},
    tolerance_hours=0.1,
    answers={
        "select cluster, count(power_w) as n, max(power_w) > 300 as high from sample group by 1": [
            {"n": 72, "high": True}
        ]
    },
)
