"""A remote desktop closed under its user."""

from tests.field.resting import build_situation, rest

PARTS = [
    rest("desktop", kind="Notebook", host={"container_network_transmit_bytes_total": 40e3 * 60}),
    rest("rest", kind="Notebook"),
]

SITUATION = build_situation("K", PARTS, {"desktop": "no finding", "rest": ""})
