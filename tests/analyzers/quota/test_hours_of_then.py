"""Queue and team of an hour are those that the pod had then, not those of today."""

from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from analyzers.quota.rows import read_table
from dashboards.figures.query import Filters, run_query
from dashboards.figures.queues import DEMAND_STEPS
from fallow.window import Window
from tests.analyzers.quota.conftest import END, NAIVE
from warehouse.steps import VALUE_ERAS

WINDOW = Window(END - timedelta(hours=10), END)
CHANGE = NAIVE - timedelta(hours=4)


def put_pod(views: Any, name: str, queue: str, **more: Any) -> None:
    first = NAIVE - timedelta(hours=20)
    pod = {"cluster": "c", "namespace": "ml", "uid": name, "pod": name, "workload": name}
    times = {"created_at": first, "scheduled_at": first, "first_seen": first, "last_seen": NAIVE}
    row = {"workload_kind": "Job", "gpu_request": 1.0, "queue": queue, **times, **more}
    views.rows("pod", [pod | row])


def put_eras(views: Any, uid: str, kind: str, before: str, after: str) -> None:
    first = NAIVE - timedelta(hours=20)
    era = {"cluster": "c", "kind": kind, "id": uid}
    views.rows(
        "attribute_era",
        [
            era | {"value": before, "valid_from": first, "valid_to": CHANGE},
            era | {"value": after, "valid_from": CHANGE},
        ],
    )


def test_idle_hours_are_of_the_queue_of_then(views: Any) -> None:
    """Ten idle hours of each of two jobs; one moved from red to blue four hours ago."""
    put_pod(views, "moved", "blue")
    put_pod(views, "stays", "red")
    put_eras(views, "moved", "pod.queue", "red", "blue")
    views.rows(
        "ledger",
        [
            {
                "cluster": "c", "bucket": NAIVE - timedelta(hours=n + 1), "device": name,
                "state": "idle", "namespace": "ml", "workload_kind": "Job", "workload": name,
                "gpu_seconds": 3600.0, "priced": True,
            }
            for n in range(10)
            for name in ("moved", "stays")
        ],
    )  # fmt: skip
    span = {"since": WINDOW.start, "until": WINDOW.end}
    rows = read_table(views, VALUE_ERAS, "quota/queue_hours", span=span)
    idle: Counter[str] = Counter()
    for queue, hours in rows.select("queue", "idle").iter_rows():
        idle[queue] += hours
    assert idle == {"red": 16, "blue": 4}


def test_an_hour_of_a_job_that_was_made_again_is_of_its_pod_of_then(views: Any) -> None:
    last = NAIVE - timedelta(hours=5)
    put_pod(views, "first", "zebra", workload="job", finished_at=last, last_seen=last)
    put_pod(views, "second", "ant", workload="job", created_at=last, first_seen=last)
    hour = {
        "cluster": "c", "device": "d", "state": "idle", "namespace": "ml", "workload_kind": "Job",
        "workload": "job", "gpu_seconds": 3600.0, "priced": True,
    }  # fmt: skip
    views.rows("ledger", [hour | {"bucket": NAIVE - timedelta(hours=n)} for n in (1, 8)])
    span = {"since": WINDOW.start, "until": WINDOW.end}
    rows = read_table(views, VALUE_ERAS, "quota/queue_hours", span=span)
    assert rows.select("queue").to_series().to_list() == ["zebra", "ant"]


@pytest.mark.parametrize(
    ("hours", "queue", "team"),
    [
        pytest.param(8, "red", "old", id="placed-before"),
        pytest.param(2, "blue", "new", id="placed-after"),
        pytest.param(None, "blue", "new", id="waits"),
    ],
)
def test_what_waited_is_of_the_queue_and_team_of_its_placement(
    views: Any, hours: float | None, queue: str, team: str
) -> None:
    placed = None if hours is None else NAIVE - timedelta(hours=hours)
    put_pod(views, "moved", "blue", team="new", scheduled_at=placed)
    put_eras(views, "moved", "pod.queue", "red", "blue")
    put_eras(views, "moved", "pod.team", "old", "new")
    (row,) = run_query(views, DEMAND_STEPS, WINDOW, Filters()).to_pylist()
    assert (row["queue"], row["team"]) == (queue, team)
    assert run_query(views, DEMAND_STEPS, WINDOW, Filters(team=team)).num_rows == 1
