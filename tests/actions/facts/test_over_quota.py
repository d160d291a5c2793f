"""Whether a workload's queue or namespace holds more GPUs than it is guaranteed."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from actions.facts.quotas import Quotas
from tests.actions.cases import NOW
from tests.analyzers.conftest import Memory

GPU = "nvidia.com/gpu"
MINUTE = timedelta(minutes=1)


@pytest.fixture
def views() -> Iterator[Memory]:
    memory = Memory()
    yield memory
    memory.engine.close()


def put(views: Memory, kind: str, name: str, *said: tuple[Any, ...], **more: Any) -> None:
    """Put rows: what an object said of a resource, so many minutes before now."""
    ago = more.pop("ago", 1)
    rows = [
        {
            "cluster": "c",
            "ts": (NOW - ago * MINUTE).replace(tzinfo=None),
            "kind": kind,
            "namespace": "",
            "name": name,
            "resource": resource,
            "nominal": nominal,
            "used": used,
            **more,
        }
        for resource, nominal, used in said
    ]
    views.rows("quota", rows)


def over(views: Memory, queue: str | None = None, namespace: str = "team-a") -> bool | None:
    return Quotas(views, NOW).over("c", namespace, queue)


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ([(GPU, 8, 9)], True),
        ([(GPU, 8, 8)], False),
        ([(GPU, 0, 1)], True),
        ([(GPU, None, 9)], None),
        ([(GPU, 8, None)], None),
        ([("cpu", 8, 9)], None),
        ([(f"{GPU}@a", 8, 12), (f"{GPU}@b", 8, 2)], False),
        ([(f"{GPU}@a", 8, 12), (f"{GPU}@b", 8, 5)], True),
        ([(f"{GPU}@a", 8, 12), ("cpu@a", 1, None)], True),
        ([("nvidia.com/mig-1g.10gb", 7, 7), (GPU, 1, 1)], False),
        ([("nvidia.com/mig-3g.40gb", 2, 3), (GPU, 1, 1)], True),
    ],
)
def test_a_queue_is_over_when_all_its_gpus_together_are_more_than_guaranteed(
    views: Memory, said: list[tuple[Any, ...]], *, expected: bool | None
) -> None:
    put(views, "Queue.volcano", "q", *said)
    assert over(views, "q") is expected


def test_a_kueue_workload_goes_by_the_cluster_queue_of_its_local_queue(views: Memory) -> None:
    put(views, "ClusterQueue", "big", (f"{GPU}@a", 4, 9))
    put(views, "ClusterQueue", "mine", (f"{GPU}@a", 4, 2))
    put(views, "LocalQueue", "big", ("workloads", None, None), namespace="team-a", parent="mine")
    put(views, "LocalQueue", "lost", ("workloads", None, None), namespace="team-a", parent="gone")
    assert over(views, "big") is False
    assert over(views, "big", namespace="team-b") is True, "no LocalQueue: a queue of that name"
    assert over(views, "lost") is None
    assert over(views, "nope") is None


def test_without_a_queue_the_namespace_s_elastic_quota_tells_and_a_resource_quota_does_not(
    views: Memory,
) -> None:
    put(views, "ResourceQuota", "r", (GPU, 4, 9), namespace="team-a")
    assert over(views) is None
    put(views, "ElasticQuota", "e", (GPU, 4, 9), namespace="team-a")
    assert over(views) is True
    assert over(views, namespace="team-b") is None


def test_the_last_look_before_the_moment_tells_and_an_old_one_nothing(views: Memory) -> None:
    put(views, "Queue.kai", "q", (GPU, 8, 9), ago=30)
    put(views, "Queue.kai", "q", (GPU, 8, 2), ago=2)
    put(views, "Queue.kai", "q", (GPU, 8, 9), ago=-5)
    assert over(views, "q") is False
    put(views, "Queue.kai", "old", (GPU, 8, 9), ago=61)
    assert over(views, "old") is None


def test_queues_of_one_name_that_do_not_agree_say_nothing(views: Memory) -> None:
    put(views, "Queue.kai", "q", (GPU, 8, 9))
    put(views, "Queue.volcano", "q", (GPU, 8, 2))
    assert over(views, "q") is None
