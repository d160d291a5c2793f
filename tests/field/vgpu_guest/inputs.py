"""A log of nvidia-smi in a guest."""

from tests.field.site import STEP, ago
from tests.field.situation import Situation, Table

HEAD = "timestamp, uuid, name, utilization.gpu [%], power.draw [W]"
COLUMNS = (
    "workload=uuid,device=uuid,ts=timestamp,model=name,"
    "gpu_util_pct=utilization.gpu [%],power_w=power.draw [W]"
)
ROWS = [
    f"{ago(6) + STEP * k:%Y/%m/%d %H:%M:%S}.000, GPU-vm, NVIDIA L40-16Q, {80 + k % 9} %, [N/A]"
    for k in range(72)
]
COUNTS = (
    "select cluster, count(power_w) as power, count(gpu_util_pct) as util from sample"
    " group by cluster"
)

SITUATION = Situation(
    kind="I",
    tables=[Table("\n".join([HEAD, *ROWS, ""]), COLUMNS)],
    hours={"cluster": {"vgpu_guest": 6.0}},
    tolerance_hours=0.1,
    answers={COUNTS: [{"power": 0, "util": 72}]},
)
