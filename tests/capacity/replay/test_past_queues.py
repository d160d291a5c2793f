"""The queues of a replay are those that the quotas of the past describe, cohorts of cohorts too."""

from datetime import timedelta

from capacity.history.queue_history import read_history
from capacity.replay.past import build_past
from capacity.replay.records import ReplayQueue
from fallow.window import Window
from tests.actions.cases import NOW
from tests.analyzers.conftest import Memory

HOUR = timedelta(hours=1)


def test_cohorts_stand_over_their_queues_with_their_own_quota_and_limits() -> None:
    views = Memory()
    there = {"cluster": "c", "ts": NOW - HOUR, "namespace": ""}
    gpus = {**there, "resource": "nvidia.com/gpu@h100"}
    views.rows("quota", [
        {**gpus, "kind": "ClusterQueue", "name": "main", "nominal": 4.0, "lending": 1.0,
         "parent": "left"},
        {**there, "kind": "Cohort", "name": "left", "resource": "cpu@h100", "nominal": 9.0,
         "parent": "all"},
        {**there, "kind": "Cohort", "name": "right", "resource": "cohorts", "parent": "all"},
        {**gpus, "kind": "Cohort", "name": "all", "nominal": 2.0, "limit": 2.0},
        {**there, "kind": "Cohort", "name": "all", "resource": "cpu@h100", "nominal": 9.0},
    ])  # fmt: skip
    node = {"cluster": "c", "node": "n1", "gpu_count": 8, "gpu_model": "H100"}
    pod = {
        "cluster": "c", "uid": "p1", "namespace": "ml", "pod": "p1", "phase": "Pending",
        "gpu_request": 1.0, "gpu_resource": "nvidia.com/gpu", "created_at": NOW - HOUR,
    }  # fmt: skip
    seen = {"first_seen": NOW - HOUR, "last_seen": NOW}
    views.rows("node", [node | seen])
    views.rows("pod", [pod | seen])
    past = build_past(read_history(views, Window(NOW - 2 * HOUR, NOW), None))
    views.engine.close()
    assert sorted(past.site.queues, key=lambda queue: queue.name) == [
        ReplayQueue("all", 2000, 2000, is_cohort=True),
        ReplayQueue("left", 0, cohort="all", is_cohort=True),
        ReplayQueue("main", 4000, None, 1000, "left"),
        ReplayQueue("right", 0, cohort="all", is_cohort=True),
    ]
