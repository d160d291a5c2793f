"""A StatefulSet's pod twice."""

from tests.field.site import ago, build_node, build_pod, list_lines, write_time
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
                    "finishedAt": write_time(ago(3)),
                }
            },
        }
    ],
}
FIRST = build_pod("web-0", "a", gpus=1, labels={"team": "blue"}, status=ENDED)
SECOND = build_pod("web-0", "a", gpus=1, labels={"team": "green"}, born=3)
SECOND["metadata"]["uid"] = "uid-second"

SITUATION = Situation(
    kind="C",
    dumps=[[build_node("a", 1), FIRST], [build_node("a", 1), SECOND]],
    lines=list_lines("GPU-0", "a", pod="web-0", namespace="ml"),
    hours={"team": {"blue": 3.0, "green": 3.0}},
    tolerance_hours=0.1,
)
