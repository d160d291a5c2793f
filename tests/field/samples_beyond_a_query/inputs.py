"""A VictoriaMetrics that reads only so many samples for a query."""

from tests.field.front import build_error, refuse_longer
from tests.field.history import scrape_gpu, scrape_node
from tests.field.site import FREE, label_instance
from tests.field.situation import Situation

REASON = (
    "error occured during search: cannot fetch query results from vmstorage nodes: cannot process "
    "MetricBlock #1: cannot select more than -search.maxSamplesPerQuery=1000000000 samples; "
    "possible solutions: to increase the -search.maxSamplesPerQuery; to reduce time range"
)

GPU = {"gpu": "0", "UUID": "GPU-0", "Hostname": "node-1", "modelName": "NVIDIA A10G"}

SITUATION = Situation(
    kind="I",
    front=refuse_longer(1, 422, build_error(REASON, "422")),
    scrapes=[
        *scrape_node("node-1", 1, labels=label_instance("g5.xlarge")),
        *scrape_gpu(GPU, FREE),
    ],
    hours={"state": {"free": 6.0}},
    tolerance_hours=0.2,
)
