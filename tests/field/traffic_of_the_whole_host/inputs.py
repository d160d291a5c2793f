"""The host's traffic under a pod's name."""

from tests.field.resting import build_situation, rest

WIRE = {"container_network_receive_bytes_total": 50e6 * 60}
PARTS = [
    rest("crowded", kind="Notebook", host=WIRE, spec={"hostNetwork": True}),
    rest("rest", kind="Notebook"),
]

SITUATION = build_situation("K", PARTS, {"crowded": "no finding", "rest": ""})
