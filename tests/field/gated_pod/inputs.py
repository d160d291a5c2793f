"""A pod behind a gate."""

from tests.field.site import build_node, build_pod
from tests.field.situation import Situation

GATED = build_pod(
    "gated",
    "",
    gpus=2,
    spec={"schedulingGates": [{"name": "kueue.x-k8s.io/admission"}, {"name": "test"}]},
    status={
        "phase": "Pending",
        "startTime": None,
        "containerStatuses": [],
        "conditions": [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}],
    },
)
del GATED["spec"]["nodeName"]

SITUATION = Situation(
    kind="D",
    dumps=[[build_node("a", 2), GATED]],
    pods={"gated": {"node": None, "scheduled_at": None, "started_at": None, "phase": "Pending"}},
)
