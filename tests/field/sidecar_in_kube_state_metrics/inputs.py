"""A pod whose sidecar has the GPU."""

from tests.field.history import scrape_gpu, scrape_node, scrape_pod
from tests.field.site import BUSY, label_instance
from tests.field.situation import Situation

GPU = {"gpu": "0", "UUID": "GPU-0", "Hostname": "node-1", "modelName": "NVIDIA A10G"}

SITUATION = Situation(
    kind="F",
    scrapes=[
        *scrape_node("node-1", 1, labels=label_instance("g5.xlarge")),
        *scrape_pod("serve-0", "node-1", team="ml", init=True),
        *scrape_gpu(GPU, BUSY),
    ],
    hours={"team": {"ml": 6.0}},
    tolerance_hours=0.2,
    pods={"serve-0": {"gpu_request": 1.0}},
)
