"""A pod is named in every other half hour only; it rests, its twin works."""

from dataclasses import replace

from tests.field.history import Scrape, scrape_gpu, scrape_host, scrape_node, scrape_pod
from tests.field.site import BUSY, IDLE
from tests.field.situation import Situation

REST = {**IDLE, "DCGM_FI_DEV_POWER_USAGE": 50.0}
WORK = {**BUSY, "DCGM_FI_DEV_POWER_USAGE": 150.0}

GPU = {"gpu": "0", "UUID": "GPU-0", "Hostname": "a", "modelName": "NVIDIA A30"}
NAMED = {**GPU, "pod": "train-0", "namespace": "ml", "container": "c"}


def list_scrapes(values: dict[str, float]) -> list[Scrape]:
    return [
        *scrape_node("a", 1),
        *scrape_pod("train-0", "a", owner=("PyTorchJob", "train")),
        *scrape_host("train-0", {"c": 0.01}),
        *(
            one
            for k in range(12)
            for one in scrape_gpu(
                GPU if k % 2 else NAMED, values, since=6 - k / 2, until=5.5 - k / 2
            )
        ),
    ]


SITUATION = Situation(
    kind="S",
    scrapes=list_scrapes(REST),
    hours={"state": {"idle": 6.0}},
    tolerance_hours=0.1,
    findings={"ml/train": {"evidence": "confirmed", "actionable": True}},
)
TWIN = replace(
    SITUATION, scrapes=list_scrapes(WORK), hours={"state": {"productive": 6.0}}, findings={}
)
