"""Model servers of which nobody knows whether requests wait."""

from math import nan

from tests.field.resting import VLLM, build_situation, load, rest

WAITS = "vllm:num_requests_waiting"
UNPRINTED = {metric: value for metric, value in VLLM.items() if metric != WAITS}
UNKNOWN = "no request metrics tell whether it serves"

PARTS = [
    rest("unprinted", serving=load("unprinted", UNPRINTED)),
    rest("nan", serving=load("nan", {**VLLM, WAITS: nan})),
    rest("rest", serving=load("rest", VLLM)),
]

SITUATION = build_situation("J", PARTS, {"unprinted": UNKNOWN, "nan": UNKNOWN, "rest": ""})
