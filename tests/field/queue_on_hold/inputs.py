"""Queue on hold."""

from tests.field.kueue import build_cluster_queue, build_waiting, build_workload

SITUATION = build_waiting(
    {"a": {}},
    build_cluster_queue("a", 8, stop="Hold"),
    build_workload("held", 4, message="ClusterQueue a is stopped"),
    waits={"ml/job-held": {"reason": "gate", "borrow": "none", "raise_quota": "none"}},
    says=("its queue or the scheduler holds it back",),
)
