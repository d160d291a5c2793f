"""Nodes without an exporter."""

from dataclasses import replace

from tests.field.kueue import build_cluster_queue, build_waiting, build_workload

SITUATION = replace(
    build_waiting(
        {"a": {}},
        build_cluster_queue("a", 8),
        build_workload("blind", 4, message=""),
        waits={"ml/job-blind": {"reason": "unknown", "free": "none"}},
        says=("whether 4 more devices are free is not known",),
    ),
    lines=(),
)
