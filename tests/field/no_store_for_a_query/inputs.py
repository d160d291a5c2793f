"""Three days parameters of a Thanos that has six hours."""

import urllib.parse

from tests.field.history import scrape_gpu, scrape_node
from tests.field.site import END, FREE, HOURS, ago, label_instance
from tests.field.situation import Situation


def _answer(path: str, status: int, body: bytes) -> tuple[int, bytes]:
    parts = urllib.parse.urlsplit(path)
    parameters = dict(urllib.parse.parse_qsl(parts.query))
    if status != 200 or "query" not in parts.path or "vector(" in parameters.get("query", ""):
        return status, body
    newest = float(parameters.get("end") or parameters.get("time") or END.timestamp())
    if newest >= ago(HOURS).timestamp():
        return status, body
    matrix = "query_range" in parts.path or parameters.get("query", "").endswith("]")
    kind = b"matrix" if matrix else b"vector"
    return 200, (
        b'{"status":"success","data":{"resultType":"' + kind + b'","result":[]},'
        b'"warnings":["No StoreAPIs matched for this query"]}'
    )


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
