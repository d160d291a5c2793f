"""A situation of one free GPU of six hours, read through a front of its Prometheus."""

import urllib.parse
from collections.abc import Callable
from typing import Any

from tests.field.front import Front
from tests.field.history import scrape_gpu, scrape_node
from tests.field.site import END, FREE, HOURS, ago, label_instance
from tests.field.situation import Situation

GPU = {"gpu": "0", "UUID": "GPU-0", "Hostname": "node-1", "modelName": "NVIDIA A10G"}


def build_situation(front: Front, **more: Any) -> Situation:
    """Return the situation whose import reads all of the six hours."""
    return Situation(
        kind="I",
        front=front,
        scrapes=[
            *scrape_node("node-1", 1, labels=label_instance("g5.xlarge")),
            *scrape_gpu(GPU, FREE),
        ],
        hours={"state": {"free": 6.0}},
        tolerance_hours=0.2,
        **more,
    )


def answer_before_the_store(answer: Callable[[str], tuple[int, bytes]]) -> Front:
    """Return a front of a Thanos whose stores have the six hours; earlier queries get an answer.

    `answer`: the status and the body by the type of the result.
    """

    def change(path: str, status: int, body: bytes) -> tuple[int, bytes]:
        parts = urllib.parse.urlsplit(path)
        parameters = dict(urllib.parse.parse_qsl(parts.query))
        query = parameters.get("query", "")
        if status != 200 or "query" not in parts.path or "vector(" in query:
            return status, body
        newest = float(parameters.get("end") or parameters.get("time") or END.timestamp())
        if newest >= ago(HOURS).timestamp():
            return status, body
        return answer("matrix" if "query_range" in parts.path or query.endswith("]") else "vector")

    return change
