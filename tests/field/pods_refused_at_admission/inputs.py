"""Three pods that failed days ago, and one that runs."""

from typing import Any

from tests.field.site import BUSY, FREE, build_node, build_pod, label_instance, list_lines
from tests.field.situation import Situation

LABELS = label_instance("g5.12xlarge", product="NVIDIA-A10G", count="4")
LOST = {
    "exitCode": 137,
    "reason": "ContainerStatusUnknown",
    "startedAt": None,
    "finishedAt": None,
}
GHOSTS: tuple[dict[str, Any], ...] = (
    {"phase": "Failed", "reason": "UnexpectedAdmissionError", "containerStatuses": []},
    {"phase": "Failed", "reason": "Evicted", "containerStatuses": []},
    {
        "phase": "Failed",
        "containerStatuses": [
            {
                "name": "c",
                "restartCount": 0,
                "ready": False,
                "image": "x",
                "imageID": "",
                "state": {"terminated": LOST},
            }
        ],
    },
)

SITUATION = Situation(
    kind="D",
    dumps=[
        [
            build_node("a", 4, labels=LABELS),
            *(
                build_pod(f"web-{k}", "a", gpus=1, namespace="ghosts", born=120, status=status)
                for k, status in enumerate(GHOSTS)
            ),
            build_pod("train", "a", gpus=1),
        ]
    ],
    lines=[
        line
        for k in range(4)
        for line in list_lines(
            f"GPU-{k}", "a", gpu=k, values=FREE if k else BUSY, modelName="NVIDIA A10G"
        )
    ],
    hours={"team": {"ml": 6.0, "(platform)": 18.0}},
    long=False,
)
