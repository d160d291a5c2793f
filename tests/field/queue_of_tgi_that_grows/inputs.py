"""A queue of TGI that never shrinks."""

from tests.field.resting import build_situation, load, rest

QUIET = {"tgi_request_success": 9, "tgi_queue_size": 0, "tgi_batch_current_size": 0}
PARTS = [
    rest("stuck", serving=load("stuck", {**QUIET, "tgi_queue_size": 30})),
    rest("rest", serving=load("rest", QUIET)),
]

SITUATION = build_situation("J", PARTS, {"stuck": "requests at its servers: 30 wait", "rest": ""})
