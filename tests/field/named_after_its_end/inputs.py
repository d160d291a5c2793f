"""A pod is named for half an hour after it ended; its twin lives on."""

from tests.field.history import scrape_gpu, scrape_host, scrape_node, scrape_pod
from tests.field.site import BUSY, IDLE
from tests.field.situation import Situation

REST = {**IDLE, "DCGM_FI_DEV_POWER_USAGE": 50.0}
WORK = {**BUSY, "DCGM_FI_DEV_POWER_USAGE": 150.0}

GPU = {"gpu": "0", "UUID": "GPU-0", "Hostname": "a", "modelName": "NVIDIA A30"}
NAMED = {**GPU, "pod": "train-0", "namespace": "ml", "container": "c"}

SITUATION = Situation(
    kind="S",
    scrapes=[
        *scrape_node("a", 1),
        *scrape_pod("train-0", "a", owner=("PyTorchJob", "train"), until=3),
        *scrape_pod(
            "train-0",
            "a",
            owner=("PyTorchJob", "train"),
            since=3,
            until=1,
            phase="Succeeded",
            completed=3,
        ),
        *scrape_gpu(NAMED, WORK, until=3),
        *scrape_gpu(NAMED, REST, since=3, until=2.5),
        *scrape_gpu(GPU, REST, since=2.5),
    ],
    hours={"state": {"productive": 3.0, "free": 3.0}},
    tolerance_hours=0.3,
    findings={},
)
TWIN = Situation(
    kind="S",
    scrapes=[
        *scrape_node("a", 1),
        *scrape_pod("train-0", "a", owner=("PyTorchJob", "train")),
        *scrape_host("train-0", {"c": 0.01}),
        *scrape_gpu(NAMED, WORK, until=3),
        *scrape_gpu(NAMED, REST, since=3),
    ],
    hours={"state": {"productive": 3.0, "idle": 3.0}},
    tolerance_hours=0.3,
    findings={"ml/train": {"evidence": "confirmed", "actionable": True}},
)
