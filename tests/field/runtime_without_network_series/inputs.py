"""A runtime without network series."""

from tests.field.resting import VLLM, build_situation, load, rest

NONE = {
    "container_network_receive_bytes_total": None,
    "container_network_transmit_bytes_total": None,
}
PARTS = [
    rest("half", kind="Notebook", host=NONE),
    rest("requests", kind="StatefulSet", host=NONE, serving=load("requests", VLLM)),
]

SITUATION = build_situation(
    "K", PARTS, {"half": "no signal from the host or of intent", "requests": ""}
)
