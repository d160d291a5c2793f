"""The only GPU of an idle job is replaced after 18 hours; in the twin the new one works."""

from dataclasses import replace

from tests.field.history import scrape_gpu, scrape_host, scrape_node, scrape_pod
from tests.field.site import BUSY, IDLE, ago, write_time
from tests.field.situation import Situation

REST = {**IDLE, "DCGM_FI_DEV_POWER_USAGE": 50.0}
WORK = {**BUSY, "DCGM_FI_DEV_POWER_USAGE": 150.0}
GPU = {"gpu": "0", "Hostname": "a", "modelName": "NVIDIA A30"}
NAMED = {**GPU, "pod": "train-0", "namespace": "ml", "container": "c"}
SITE = [
    *scrape_node("a", 1, born=400, since=36),
    *scrape_pod("train-0", "a", owner=("PyTorchJob", "train"), born=60, since=36),
    *scrape_host("train-0", {"c": 0.01}, since=36),
    *scrape_gpu({**NAMED, "UUID": "GPU-old"}, REST, since=36, until=18, every_s=120),
]

SITUATION = Situation(
    kind="S",
    scrapes=[*SITE, *scrape_gpu({**NAMED, "UUID": "GPU-new"}, REST, since=18, every_s=120)],
    since=write_time(ago(36)),
    window_hours=36,
    hours={"state": {"idle": 36.0}},
    tolerance_hours=0.3,
    findings={"ml/train": {"evidence": "confirmed"}},
)
TWIN = replace(
    SITUATION,
    scrapes=[*SITE, *scrape_gpu({**NAMED, "UUID": "GPU-new"}, WORK, since=18, every_s=120)],
    hours={"state": {"idle": 18.0, "productive": 18.0}},
)
