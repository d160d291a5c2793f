"""A pod bound five hours ago that waits for its image."""

from tests.field.site import FREE, build_node, build_pod, list_lines
from tests.field.situation import Situation

WAITING = {
    "phase": "Pending",
    "containerStatuses": [
        {
            "name": "c",
            "state": {"waiting": {"reason": "ImagePullBackOff"}},
            "ready": False,
            "restartCount": 0,
            "image": "x",
            "imageID": "",
        }
    ],
}

SITUATION = Situation(
    kind="D",
    dumps=[
        [
            build_node("a", 2),
            build_pod("oops", "a", gpus=1, namespace="red", born=5, status=WAITING),
        ]
    ],
    lines=[
        *list_lines("GPU-0", "a", values=FREE, until=5),
        *list_lines("GPU-0", "a", values=FREE, since=5, pod="oops", namespace="red"),
        *list_lines("GPU-1", "a", gpu=1, values=FREE),
    ],
    hours={"team": {"red": 5.0, "(platform)": 7.0}},
)
