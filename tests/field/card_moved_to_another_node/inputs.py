"""A GPU that worked on one node rests on another; in the twin it works there."""

from dataclasses import replace

from tests.field.history import scrape_gpu, scrape_host, scrape_node, scrape_pod
from tests.field.site import BUSY, IDLE, ago, write_time
from tests.field.situation import Situation

REST = {**IDLE, "DCGM_FI_DEV_POWER_USAGE": 50.0}
WORK = {**BUSY, "DCGM_FI_DEV_POWER_USAGE": 150.0}

GPU = {"gpu": "0", "UUID": "GPU-0", "modelName": "NVIDIA A30", "namespace": "ml", "container": "c"}
FIRST = [
    *scrape_node("a", 1, since=12, until=6),
    *scrape_node("b", 1, since=6, born=6, address="10.0.0.2"),
    *scrape_pod("one-0", "a", owner=("PyTorchJob", "one"), born=14, since=12, until=6),
    *scrape_pod("two-0", "b", owner=("PyTorchJob", "two"), born=6, since=6),
    *scrape_host("two-0", {"c": 0.01}, node="b", since=6),
    *scrape_gpu({**GPU, "Hostname": "a", "pod": "one-0"}, WORK, since=12, until=6),
]
NODES = {"a": 6.0, "b": 6.0}
SECOND = {**GPU, "Hostname": "b", "pod": "two-0"}

SITUATION = Situation(
    kind="S",
    scrapes=[*FIRST, *scrape_gpu(SECOND, REST, since=6)],
    since=write_time(ago(12)),
    window_hours=12,
    hours={
        "node": NODES,
        "workload,state": {
            "ml/PyTorchJob/one,productive": 6.0,
            "ml/PyTorchJob/two,idle": 5.75,
            "ml/PyTorchJob/two,startup": 0.25,
        },
    },
    tolerance_hours=0.3,
    findings={"ml/two": {"evidence": "confirmed", "actionable": True}},
)
TWIN = replace(
    SITUATION,
    scrapes=[*FIRST, *scrape_gpu(SECOND, WORK, since=6)],
    hours={
        "node": NODES,
        "workload,state": {
            "ml/PyTorchJob/one,productive": 6.0,
            "ml/PyTorchJob/two,productive": 6.0,
        },
    },
    findings={},
)
