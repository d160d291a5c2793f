"""A machine with the pod of a StatefulSet is renamed after 18 hours; the twin keeps its name."""

from dataclasses import replace

from tests.field.history import scrape_gpu
from tests.field.site import IDLE, ago, build_node, build_pod, write_time
from tests.field.situation import Situation

REST = {**IDLE, "DCGM_FI_DEV_POWER_USAGE": 50.0}
GPU = {"gpu": "0", "UUID": "GPU-0", "modelName": "NVIDIA A30"}
NAMED = {**GPU, "pod": "web-0", "namespace": "ml", "container": "c"}

SITUATION = Situation(
    kind="S",
    dumps=[[build_node("b", 1, born=18), build_pod("web-0", "b", gpus=1, born=18)]],
    scrapes=[
        *scrape_gpu({**NAMED, "Hostname": "a"}, REST, since=36, until=18, every_s=120),
        *scrape_gpu({**NAMED, "Hostname": "b"}, REST, since=18, every_s=120),
    ],
    since=write_time(ago(36)),
    window_hours=36,
    hours={"state": {"idle": 36.0}},
    tolerance_hours=0.5,
)
TWIN = replace(
    SITUATION,
    dumps=[[build_node("b", 1, born=60), build_pod("web-0", "b", gpus=1, born=60)]],
    scrapes=scrape_gpu({**NAMED, "Hostname": "b"}, REST, since=36, every_s=120),
)
