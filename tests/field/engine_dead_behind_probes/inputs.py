"""Engine dead behind green probes."""

from tests.field.resting import VLLM, build_situation, load, rest

PARTS = [
    rest("dead", serving=load("dead", {**VLLM, "vllm:num_requests_waiting": 3})),
    rest("rest", serving=load("rest", VLLM)),
]

SITUATION = build_situation(
    "J", PARTS, {"dead": "requests at its servers: 3 wait", "rest": ""}, long=False
)
