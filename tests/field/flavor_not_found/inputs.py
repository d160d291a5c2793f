"""Flavor not found."""

from tests.field.kueue import build_cluster_queue, build_waiting, build_workload

MESSAGE = "Can't admit new workloads: references missing ResourceFlavor(s): h200."

SITUATION = build_waiting(
    {"a": {}},
    build_cluster_queue("a", 8, active="FlavorNotFound", flavor="h200"),
    build_workload("lost", 4, message=MESSAGE),
    waits={"ml/job-lost": {"reason": "gate", "free": "none"}},
)
