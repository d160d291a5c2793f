"""A Prometheus whose queue is full at every tenth query."""

import itertools

from tests.field.front import build_error
from tests.field.history import scrape_gpu, scrape_node
from tests.field.site import FREE, label_instance
from tests.field.situation import Situation

_TURNS = itertools.cycle((True, *(False,) * 9))
_BUSY = build_error("query timed out in query queue", "timeout")


def _answer(path: str, status: int, body: bytes) -> tuple[int, bytes]:
    return (503, _BUSY) if "/query" in path and next(_TURNS) else (status, body)


GPU = {"gpu": "0", "UUID": "GPU-0", "Hostname": "node-1", "modelName": "NVIDIA A10G"}

SITUATION = Situation(
    kind="I",
    front=_answer,
    scrapes=[
        *scrape_node("node-1", 1, labels=label_instance("g5.xlarge")),
        *scrape_gpu(GPU, FREE),
    ],
    hours={"state": {"free": 6.0}},
    tolerance_hours=0.2,
)
