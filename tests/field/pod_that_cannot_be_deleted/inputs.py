"""A pod deleted three hours ago that still runs."""

from tests.field.site import ago, build_node, build_pod, list_lines, write_time
from tests.field.situation import Situation

POD = build_pod("job", "a", gpus=1)
POD["metadata"] |= {"deletionTimestamp": write_time(ago(3)), "deletionGracePeriodSeconds": 30}

SITUATION = Situation(
    kind="D",
    dumps=[[build_node("a", 1), POD]],
    lines=list_lines("GPU-0", "a", pod="job", namespace="ml"),
    hours={"team,state": {"ml,productive": 6.0}},
)
