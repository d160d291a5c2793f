"""Four of scattered gpus."""

from tests.field.kueue import build_cluster_queue, build_waiting, build_workload

HELD = {"a": {"x": 7}, "b": {"y": 6}, "c": {"z": 7}}
QUEUE = build_cluster_queue("a", 24, used=20)

SITUATION = build_waiting(
    HELD,
    QUEUE,
    build_workload("four", 4, message=""),
    waits={"ml/job-four": {"reason": "no_fit", "free": "none"}},
    says=("it needs 4 whole GPUs on one node, 2 are free",),
)
TWIN = build_waiting(
    HELD,
    QUEUE,
    build_workload("two", 2, message=""),
    waits={"ml/job-two": {"free": "holds"}},
)
