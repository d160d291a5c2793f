"""Requests swapped out."""

from tests.field.resting import VLLM, build_situation, load, rest

QUIET = {
    "vllm:request_success_total": 3,
    "vllm:num_requests_running": 0,
    "vllm:num_requests_waiting": 0,
    "vllm:num_requests_swapped": 0,
}
PARTS = [
    rest("swapped", serving=load("swapped", {**VLLM, "vllm:num_requests_swapped": 4})),
    rest("rest", serving=load("rest", QUIET)),
]

SITUATION = build_situation(
    "J", PARTS, {"swapped": "requests at its servers: 4 are swapped out", "rest": ""}
)
