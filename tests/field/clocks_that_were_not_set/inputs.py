"""Three tables with one odd row each."""

from tests.field.site import STEP, ago
from tests.field.situation import Situation, Table

ODD = {"in-1970": 5011200.5, "in-2022": 1654041600, "in-2036": 2085978496}
COLUMNS = "workload=job,device=gpu,ts=ts,gpu_util_pct=util"


def _write(name: str, odd: float) -> str:
    rows = [f"{(ago(6) + STEP * k).timestamp()},{name},g-{name},97" for k in range(72)]
    return "\n".join(["ts,job,gpu,util", f"{odd},{name},g-{name},97", *rows, ""])


SITUATION = Situation(
    kind="G",
    tables=[Table(_write(name, odd), COLUMNS) for name, odd in ODD.items()],
    hours={"cluster": {"clocks_that_were_not_set": 18.0}},
    tolerance_hours=0.3,
    answers={
        "select cluster, count(*) as n from sample where ts < now() - interval 2 day"
        " or ts > now() + interval 1 day group by cluster": [],
        "select cluster, pod from pod where last_seen > now() + interval 1 day": [],
        'select cluster, target from scrape where "until" > now() + interval 1 day': [],
    },
)
