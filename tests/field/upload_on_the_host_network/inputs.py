"""An upload on the host's network."""

from tests.field.resting import build_situation, rest

NONE = {
    "container_network_receive_bytes_total": None,
    "container_network_transmit_bytes_total": None,
}
PARTS = [
    rest("uploads", kind="Notebook", host=NONE, spec={"hostNetwork": True}),
    rest("rest", kind="Notebook"),
]

SITUATION = build_situation(
    "K", PARTS, {"uploads": "no signal from the host or of intent", "rest": ""}
)
