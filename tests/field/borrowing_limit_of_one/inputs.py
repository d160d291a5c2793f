"""Borrowing limit of one."""

from tests.field.kueue import build_cluster_queue, build_waiting, build_workload

HELD = {"a": {"x": 8}, "b": {}}
LENDER = build_cluster_queue("b", 8, "ab")

SITUATION = build_waiting(
    HELD,
    build_cluster_queue("a", 8, "ab", used=8, borrowing=1),
    LENDER,
    build_workload("two", 2),
    waits={"ml/job-two": {"reason": "quota", "borrow": "refused"}},
)
TWIN = build_waiting(
    HELD,
    build_cluster_queue("a", 8, "ab", used=8),
    LENDER,
    build_workload("two", 2),
    waits={"ml/job-two": {"reason": "quota", "borrow": "holds"}},
)
