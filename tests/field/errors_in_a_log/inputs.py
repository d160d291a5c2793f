"""A log with ERR! for an hour of power, and [GPU requires reset] for an hour of utilisation."""

from tests.field.site import STEP, ago
from tests.field.situation import Situation, Table

HEAD = "timestamp, uuid, utilization.gpu [%], power.draw [W]"
COLUMNS = (
    "workload=uuid,device=uuid,ts=timestamp,gpu_util_pct=utilization.gpu [%],power_w=power.draw [W]"
)


def _write(k: int) -> str:
    util = "[GPU requires reset]" if k // 12 == 2 else "97 %"
    power = "ERR!" if k // 12 == 4 else f"{301 + k % 5}.44 W"
    return f"{ago(6) + STEP * k:%Y/%m/%d %H:%M:%S}.123, GPU-0, {util}, {power}"


SITUATION = Situation(
    kind="I",
    tables=[Table("\n".join([HEAD, *map(_write, range(72)), ""]), COLUMNS)],
    hours={"cluster": {"errors_in_a_log": 6.0}},
    tolerance_hours=0.1,
    answers={
        "select cluster, count(*) as n, count(power_w) as power, count(gpu_util_pct) as util"
        " from sample group by 1": [{"n": 72, "power": 60, "util": 60}]
    },
)
