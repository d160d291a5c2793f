"""Frozen engine with two requests."""

from tests.field.resting import VLLM, build_situation, load, rest

PARTS = [
    rest("frozen", serving=load("frozen", {**VLLM, "vllm:num_requests_running": 2})),
    rest("rest", serving=load("rest", VLLM)),
]

SITUATION = build_situation("J", PARTS, {"frozen": "requests at its servers: 2 run", "rest": ""})
