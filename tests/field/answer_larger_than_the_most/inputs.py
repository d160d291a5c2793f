"""A Prometheus that refuses answers of more bytes than it likes, with a line of text."""

from tests.field.front import refuse_longer
from tests.field.history import scrape_gpu, scrape_node
from tests.field.site import FREE, label_instance
from tests.field.situation import Situation

GPU = {"gpu": "0", "UUID": "GPU-0", "Hostname": "node-1", "modelName": "NVIDIA A10G"}

SITUATION = Situation(
    kind="I",
    front=refuse_longer(1, 413, b"response larger than the max (181673024 vs 52428800)\n"),
    scrapes=[
        *scrape_node("node-1", 1, labels=label_instance("g5.xlarge")),
        *scrape_gpu(GPU, FREE),
    ],
    hours={"state": {"free": 6.0}},
    tolerance_hours=0.2,
)
