"""A Prometheus that takes ranges of less than 32 days."""

from tests.field.front import build_error, refuse_longer
from tests.field.history import scrape_gpu, scrape_node
from tests.field.site import FREE, label_instance
from tests.field.situation import Situation

REASON = (
    "queries with long day range (32d to 95d) are currently only supported for range type queries"
)

GPU = {"gpu": "0", "UUID": "GPU-0", "Hostname": "node-1", "modelName": "NVIDIA A10G"}

SITUATION = Situation(
    kind="I",
    since="40d",
    front=refuse_longer(32 * 24, 422, build_error(REASON)),
    scrapes=[
        *scrape_node("node-1", 1, labels=label_instance("g5.xlarge")),
        *scrape_gpu(GPU, FREE),
    ],
    hours={"state": {"free": 6.0}},
    tolerance_hours=0.2,
)
