"""Culled while a terminal's job writes."""

from tests.field.resting import build_situation, rest

PARTS = [
    rest("writes", kind="Notebook", host={"container_fs_writes_bytes_total": 20e3 * 60}),
    rest("rest", kind="Notebook"),
]

SITUATION = build_situation("K", PARTS, {"writes": "no finding", "rest": ""})
