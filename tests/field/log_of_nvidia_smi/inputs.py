"""Six hours of two A100s, as `nvidia-smi --format=csv -l 300` writes them."""

from tests.field.site import STEP, ago
from tests.field.situation import Situation, Table

HEAD = "timestamp, uuid, name, utilization.gpu [%], memory.used [MiB], power.draw [W]"
COLUMNS = (
    "workload=uuid,device=uuid,ts=timestamp,model=name,"
    "gpu_util_pct=utilization.gpu [%],power_w=power.draw [W]"
)


def _list_rows() -> list[str]:
    rows = []
    for k in range(72):
        at, hour = ago(6) + STEP * k, k // 12
        util = "[N/A]" if hour == 1 else "0 %"
        power = {2: "[Unknown Error]", 3: "[Not Supported]"}.get(hour, f"{62 + k % 3}.10 W")
        stamp = f"{at:%Y/%m/%d %H:%M:%S}.123"
        rows += [
            f"{stamp}, GPU-busy, NVIDIA A100-SXM4-80GB, 97 %, 40536 MiB, {301 + k % 3}.44 W",
            f"{stamp}, GPU-idle, NVIDIA A100-SXM4-80GB, {util}, 4 MiB, {power}",
        ]
    return rows


COUNTS = (
    "select cluster, device, count(*) as n, count(gpu_util_pct) as util, count(power_w) as power"
    " from sample group by all order by device"
)

SITUATION = Situation(
    kind="I",
    tables=[Table("\n".join([HEAD, *_list_rows(), ""]), COLUMNS)],
    hours={"cluster": {"log_of_nvidia_smi": 12.0}},
    tolerance_hours=0.1,
    answers={
        COUNTS: [
            {"device": "GPU-busy", "n": 72, "util": 72, "power": 72},
            {"device": "GPU-idle", "n": 72, "util": 60, "power": 48},
        ]
    },
    long=False,
)
