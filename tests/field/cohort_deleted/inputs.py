"""Cohort deleted."""

from tests.field.kueue import build_cluster_queue, build_cohort, build_waiting, build_workload

HELD = {"a": {"x": 4}}
OTHERS = (build_cluster_queue("a", 4, "A", used=4), build_workload("late", 4))

SITUATION = build_waiting(
    HELD, *OTHERS, waits={"ml/job-late": {"reason": "quota", "borrow": "refused"}}
)
TWIN = build_waiting(
    HELD,
    *OTHERS,
    build_cohort("A", nominal=4),
    waits={"ml/job-late": {"reason": "quota", "borrow": "holds"}},
)
