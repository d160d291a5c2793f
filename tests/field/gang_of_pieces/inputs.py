"""Gang of pieces."""

from tests.field.kueue import build_cluster_queue, build_waiting, build_workload

HELD: dict[str, dict[str, int]] = {"a": {}, "b": {}, "c": {}}

SITUATION = build_waiting(
    HELD,
    build_cluster_queue("a", 24),
    build_workload("wide", 6, 4, message=""),
    waits={"ml/job-wide": {"reason": "gang", "free": "none"}},
    says=("3 of its 4 pods fit",),
)
