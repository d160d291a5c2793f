"""A pod that succeeded two hours ago."""

from tests.field.site import FREE, ago, build_node, build_pod, list_lines, write_time
from tests.field.situation import Situation

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
                    "startedAt": write_time(ago(8)),
                    "finishedAt": write_time(ago(2)),
                }
            },
        }
    ],
}

SITUATION = Situation(
    kind="D",
    dumps=[[build_node("a", 1), build_pod("job", "a", gpus=1, status=ENDED)]],
    lines=[
        *list_lines("GPU-0", "a", until=2),
        *list_lines("GPU-0", "a", values=FREE, since=2),
    ],
    hours={"state": {"productive": 4.0, "free": 2.0}},
    tolerance_hours=0.1,
)
