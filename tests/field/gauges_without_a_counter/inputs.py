"""Gauges at 0 and no counter."""

from tests.field.resting import build_situation, load, rest

GAUGES = {"tgi_queue_size": 0, "tgi_batch_current_size": 0}
PARTS = [
    rest("unseen", serving=load("unseen", GAUGES)),
    rest("rest", serving=load("rest", {**GAUGES, "tgi_request_success": 9})),
]

SITUATION = build_situation("J", PARTS, {"unseen": "no request metrics", "rest": ""})
