"""Borrowing beyond a lending limit."""

from tests.field.kueue import build_cluster_queue, build_waiting, build_workload

HELD = {"a": {"x": 8}, "b": {"y": 1}, "c": {}}
QUEUES = (build_cluster_queue("a", 9, "ab", used=9), build_cluster_queue("b", 12, "ab", lending=1))

SITUATION = build_waiting(
    HELD,
    *QUEUES,
    build_workload("two", 2),
    waits={"ml/job-two": {"reason": "quota", "borrow": "refused"}},
    says=("leave 1 unused",),
)
TWIN = build_waiting(
    HELD,
    *QUEUES,
    build_workload("one", 1),
    waits={"ml/job-one": {"reason": "quota", "borrow": "holds"}},
)
