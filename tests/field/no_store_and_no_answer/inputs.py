"""Three days of a Thanos that has six hours and gives no partial answers."""

import urllib.parse

from tests.field.front import build_error
from tests.field.history import scrape_gpu, scrape_node
from tests.field.site import END, FREE, HOURS, ago, label_instance
from tests.field.situation import Situation

_NONE = build_error(
    "expanding series: proxy Series(): rpc error: code = Aborted desc = "
    "No StoreAPIs matched for this query"
)


def _answer(path: str, status: int, body: bytes) -> tuple[int, bytes]:
    parts = urllib.parse.urlsplit(path)
    parameters = dict(urllib.parse.parse_qsl(parts.query))
    if status != 200 or "query" not in parts.path or "vector(" in parameters.get("query", ""):
        return status, body
    newest = float(parameters.get("end") or parameters.get("time") or END.timestamp())
    if newest >= ago(HOURS).timestamp():
        return status, body
    return 422, _NONE


GPU = {"gpu": "0", "UUID": "GPU-0", "Hostname": "node-1", "modelName": "NVIDIA A10G"}

SITUATION = Situation(
    kind="I",
    since="3d",
    front=_answer,
    scrapes=[
        *scrape_node("node-1", 1, labels=label_instance("g5.xlarge")),
        *scrape_gpu(GPU, FREE),
    ],
    hours={"state": {"free": 6.0}},
    tolerance_hours=0.2,
)
