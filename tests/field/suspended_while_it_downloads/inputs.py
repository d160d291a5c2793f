"""Suspended while it downloads."""

from tests.field.resting import build_situation, rest

PARTS = [
    rest("downloads", kind="Notebook", host={"container_network_receive_bytes_total": 30e6 * 60}),
    rest("rest", kind="Notebook"),
]

SITUATION = build_situation("K", PARTS, {"downloads": "no finding", "rest": ""})
