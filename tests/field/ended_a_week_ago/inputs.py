"""A pod that ended eight days ago is still named; its twin has a namesake that lives."""

from dataclasses import replace

from tests.field.history import scrape_gpu, scrape_node
from tests.field.site import IDLE, ago, build_node, build_pod, write_time
from tests.field.situation import Situation

REST = {**IDLE, "DCGM_FI_DEV_POWER_USAGE": 50.0}
GPU = {"gpu": "0", "UUID": "GPU-0", "Hostname": "a", "modelName": "NVIDIA A30"}
NAMED = {**GPU, "pod": "train-0", "namespace": "ml", "container": "c"}
ENDED = {
    "phase": "Succeeded",
    "containerStatuses": [
        {
            "name": "c",
            "ready": False,
            "restartCount": 0,
            "image": "x",
            "imageID": "",
            "state": {
                "terminated": {
                    "exitCode": 0,
                    "startedAt": write_time(ago(200)),
                    "finishedAt": write_time(ago(192)),
                }
            },
        }
    ],
}
OLD = build_pod("train-0", "a", gpus=1, owner=("Job", "train"), born=201, status=ENDED)
LATER = build_pod("train-0", "a", gpus=1, owner=("Job", "train"), born=48)
LATER["metadata"]["uid"] = "uid-later"
JOB = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "train", "namespace": "ml", "uid": "o"},
}

SITUATION = Situation(
    kind="S",
    dumps=[[build_node("a", 1, born=400), JOB, OLD]],
    scrapes=[
        *scrape_node("a", 1, born=400, since=36),
        *scrape_gpu(NAMED, REST, since=36, every_s=120),
    ],
    since=write_time(ago(36)),
    window_hours=36,
    hours={"state": {"free": 36.0}},
    tolerance_hours=0.2,
    findings={},
)
TWIN = replace(
    SITUATION,
    dumps=[[build_node("a", 1, born=400), JOB, OLD, LATER]],
    hours={"state": {"idle": 36.0}},
    findings={"ml/train": {"evidence": "confirmed", "actionable": False}},
)
