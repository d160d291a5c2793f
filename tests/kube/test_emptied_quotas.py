"""A key that a quota no longer has, and a limit that was taken off it, are in no answer."""

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest

from actions.facts.quotas import Quotas
from capacity.history.queue_history import read_history
from capacity.quota.room import QuotaRoom
from dashboards.figures.query import Filters
from dashboards.figures.queues import read_quotas
from fallow.window import Window
from tests.actions.cases import NOW
from tests.analyzers.conftest import Memory

GPU = "nvidia.com/gpu"
WINDOW = Window(NOW - timedelta(minutes=30), NOW)


@pytest.fixture
def views() -> Iterator[Memory]:
    memory = Memory()
    yield memory
    memory.engine.close()


def put_quota(views: Memory, at: datetime, **limits: float | None) -> None:
    common = {"cluster": "c", "ts": at.replace(tzinfo=None), "namespace": "ml", "name": "q"}
    amounts = {"kind": "ElasticQuota", "nominal": 2.0, "used": 4.0}
    names = {"gpu": GPU, "cpu": "cpu"}
    views.rows(
        "quota",
        [
            {**common, **amounts, "resource": names[key], "limit": limit}
            for key, limit in limits.items()
        ],
    )


def read_past(views: Memory) -> Any:
    return [(quota.name, quota.limit) for quota in read_history(views, WINDOW).quotas]


def read_page(views: Memory) -> Any:
    rows = read_quotas(views, WINDOW, Filters()).to_pylist()
    return [(row["name"], row["limit"]) for row in rows]


def read_over(views: Memory) -> Any:
    return Quotas(views, NOW).over("c", "ml", None)


def read_room(views: Memory) -> Any:
    return QuotaRoom(views, NOW).admits("c", "ml", None, {GPU: 1}).admitted


@pytest.mark.parametrize(
    ("read", "full", "unlimited", "emptied"),
    [
        (read_past, [("q", 8.0)], [("q", None)], []),
        (read_page, [("ml/q", 8.0)], [("ml/q", None)], []),
        (read_over, True, True, None),
        (read_room, False, False, True),
    ],
)
def test_what_a_quota_no_longer_has_is_gone(
    views: Memory,
    read: Callable[[Memory], Any],
    full: object,
    unlimited: object,
    emptied: object,
) -> None:
    put_quota(views, NOW - timedelta(minutes=20), gpu=8.0, cpu=1.0)
    assert read(views) == full
    put_quota(views, NOW - timedelta(minutes=15), gpu=None, cpu=1.0)
    assert read(views) == unlimited
    put_quota(views, NOW - timedelta(minutes=10), cpu=1.0)
    assert read(views) == emptied
