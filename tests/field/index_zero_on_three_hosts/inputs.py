"""A table of three hosts."""

from tests.field.site import STEP, ago
from tests.field.situation import Situation, Table

COLUMNS = "workload=job,device=gpu,node=host,ts=ts,gpu_util_pct=util"


def _list_rows() -> list[str]:
    return [
        f"{int((ago(6) + STEP * k).timestamp())},job-{host},0,host-{host},{90 + k % 5}"
        for k in range(72)
        for host in range(3)
    ]


SITUATION = Situation(
    kind="H",
    tables=[Table("\n".join(["ts,job,gpu,host,util", *_list_rows(), ""]), COLUMNS)],
    hours={"node": {f"host-{k}": 6.0 for k in range(3)}},
    tolerance_hours=0.1,
)
