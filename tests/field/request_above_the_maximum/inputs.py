"""Request above the maximum."""

from tests.field.kueue import build_cluster_queue, build_waiting, build_workload

MESSAGE = (
    "couldn't assign flavors to pod set main: insufficient quota for nvidia.com/gpu in flavor "
    "h100, request > maximum capacity (24 > 16)"
)

SITUATION = build_waiting(
    {"a": {}, "b": {}, "c": {}},
    build_cluster_queue("a", 16),
    build_workload("large", 8, 3, message=MESSAGE),
    waits={"ml/job-large": {"reason": "quota", "free": "none", "borrow": "refused"}},
)
