"""One moment as eight programs write it."""

from datetime import timedelta, timezone

from tests.field.site import ago
from tests.field.situation import Situation, Table

AT = ago(5)
THERE = AT.astimezone(timezone(timedelta(hours=1)))
FORMS = {
    "pandas": f"{AT:%Y-%m-%d %H:%M:%S}+00:00",
    "pandas-berlin": f"{THERE:%Y-%m-%d %H:%M:%S}+01:00",
    "iso-without-colon": f"{THERE:%Y-%m-%dT%H:%M:%S}+0100",
    "bigquery": f"{AT:%Y-%m-%d %H:%M:%S} UTC",
    "bigquery-fractions": f"{AT:%Y-%m-%d %H:%M:%S.%f} UTC",
    "nvidia-smi": f"{AT:%Y/%m/%d %H:%M:%S}.000",
    "pandas-iso": AT.strftime("%Y-%m-%dT%H:%M:%S.%f+00:00"),
    "go": f"{AT:%Y-%m-%d %H:%M:%S} +0000 UTC",
}
COLUMNS = "workload=job,ts=when,gpu_util_pct=util"
REFUSED = {"go": "which is no time"}

SITUATION = Situation(
    kind="G",
    tables=[
        Table(f"when,job,util\n{text},{name},50\n", COLUMNS, refused=REFUSED.get(name, ""))
        for name, text in FORMS.items()
    ],
    answers={
        "select distinct cluster, ts from sample where cluster = 'spelled_times'": [
            {"ts": f"{AT:%Y-%m-%dT%H:%M:%S}"}
        ]
    },
)
