"""Nodes without an exporter."""

from dataclasses import replace

from tests.field.kueue import build_cluster_queue, build_waiting, build_workload

QUEUE = build_cluster_queue("a", 24)

SITUATION = replace(
    build_waiting(
        {"a": {}, "b": {}, "c": {}},
        QUEUE,
        build_workload("wide", 6, 4, message=""),
        waits={"ml/job-wide": {"reason": "gang", "free": "none"}},
        says=("3 of its 4 pods fit",),
    ),
    lines=(),
)
TWIN = replace(
    build_waiting(
        {"a": {}, "b": {}, "c": {}},
        QUEUE,
        build_workload("blind", 4, message=""),
        waits={"ml/job-blind": {"reason": "unknown", "free": "none"}},
    ),
    lines=(),
)
