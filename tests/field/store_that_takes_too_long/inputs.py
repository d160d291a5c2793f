"""A Thanos whose store needs long for long windows."""

from tests.field.front import build_error, refuse_longer
from tests.field.history import scrape_gpu, scrape_node
from tests.field.site import FREE, label_instance
from tests.field.situation import Situation

REASON = (
    "expanding series: proxy Series(): rpc error: code = Unknown desc = context deadline exceeded"
)

GPU = {"gpu": "0", "UUID": "GPU-0", "Hostname": "node-1", "modelName": "NVIDIA A10G"}

SITUATION = Situation(
    kind="I",
    front=refuse_longer(1, 422, build_error(REASON)),
    scrapes=[
        *scrape_node("node-1", 1, labels=label_instance("g5.xlarge")),
        *scrape_gpu(GPU, FREE),
    ],
    hours={"state": {"free": 6.0}},
    tolerance_hours=0.2,
)
