"""Requests pending at Triton for days."""

from tests.field.resting import build_situation, load, rest

QUIET = {"nv_inference_request_success": 9, "nv_inference_pending_request_count": 0}
OF = {"model": "llama", "version": "1"}
PARTS = [
    rest(
        "pending", serving=load("pending", {**QUIET, "nv_inference_pending_request_count": 6}, OF)
    ),
    rest("rest", serving=load("rest", QUIET, OF)),
]

SITUATION = build_situation("J", PARTS, {"pending": "requests at its servers: 6 wait", "rest": ""})
