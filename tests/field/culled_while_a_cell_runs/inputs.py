"""Culled while a cell runs."""

from tests.field.resting import build_situation, rest

PARTS = [
    rest("cell", kind="Notebook", host={"container_cpu_usage_seconds_total": 60}),
    rest("rest", kind="Notebook"),
]

SITUATION = build_situation("K", PARTS, {"cell": "no finding", "rest": ""})
