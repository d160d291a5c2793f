"""Stopped for the inactivity of a page."""

from tests.field.resting import build_situation, rest
from tests.field.site import BUSY

PARTS = [
    rest("trains", kind="Notebook", metrics=BUSY, host={"container_cpu_usage_seconds_total": 90}),
    rest("rest", kind="Notebook"),
]

SITUATION = build_situation("K", PARTS, {"trains": "no finding", "rest": ""})
