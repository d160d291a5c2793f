"""Cohort of cohorts."""

from tests.field.kueue import build_cluster_queue, build_cohort, build_waiting, build_workload

HELD = {"a": {"x": 4}, "b": {}}
OTHERS = (
    build_cluster_queue("a", 4, "A", used=4),
    build_cluster_queue("b", 12, "B"),
    build_cohort("B", "R"),
    build_cohort("R"),
    build_workload("deep", 4),
)

SITUATION = build_waiting(
    HELD,
    *OTHERS,
    build_cohort("A", "R", 0, borrowing=0),
    waits={"ml/job-deep": {"reason": "quota", "borrow": "refused"}},
)
TWIN = build_waiting(
    HELD,
    *OTHERS,
    build_cohort("A", "R"),
    waits={"ml/job-deep": {"reason": "quota", "borrow": "holds"}},
    says=('"b"',),
)
