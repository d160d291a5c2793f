"""A pod whose owner or team is known later is one workload and one team from its first hour."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fallow.models import PLATFORM, UNRESOLVED
from fallow.settings import Settings
from fallow.tables import Batch
from fallow.window import Window
from runtime.operations.accounting import pipeline
from warehouse.lake import Warehouse
from warehouse.spend import read_spend

pytestmark = pytest.mark.slow

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
BEGIN = NOW - timedelta(hours=12)
WHOLE = Window(BEGIN, NOW)
FIRST, SECOND = (Window(BEGIN, BEGIN + timedelta(hours=2)), Window(NOW - timedelta(hours=2), NOW))
"""The first is ten hours older: further back than what a pass posts again by itself."""


def samples(window: Window, pod: str) -> Batch:
    minutes = int(window.seconds // 60)
    begin = window.start.replace(tzinfo=None)
    return Batch.of(
        "sample",
        {
            "cluster": ["c"] * minutes,
            "ts": [begin + timedelta(minutes=i) for i in range(minutes)],
            "device": ["GPU-1"] * minutes,
            "node": ["n1"] * minutes,
            "interval_s": [60.0] * minutes,
            "gpu_util_pct": [90.0] * minutes,
            "namespace": ["ml"] * minutes,
            "pod": [pod] * minutes,
        },
    )


def pod(window: Window, name: str = "web-a", uid: str = "u1", **columns: Any) -> Batch:
    start, end = (t.replace(tzinfo=None) for t in (window.start, window.end))
    row = {
        "cluster": "c", "uid": uid, "namespace": "ml", "pod": name, "node": "n1",
        "gpu_request": 1.0, "phase": "Running", "created_at": start, "scheduled_at": start,
        "started_at": start, "first_seen": start, "last_seen": end, **columns,
    }  # fmt: skip
    return Batch.of("pod", {key: [value] for key, value in row.items()})


def owned(**more: Any) -> dict[str, Any]:
    return {"workload_kind": "Deployment", "workload": "web", **more}


def by(warehouse: Warehouse, key: str) -> dict[str, float]:
    rows = read_spend(warehouse, WHOLE, [key]).to_pylist()
    return {r[key]: round(r["gpu_hours"], 3) for r in rows if r[key] != PLATFORM}


@pytest.fixture
def passes(settings: Settings) -> Callable[..., Warehouse]:
    def made(*windows: tuple[Window, list[Batch]]) -> Warehouse:
        warehouse = Warehouse.open_in_memory(settings, clock=lambda: NOW)
        for window, batches in windows:
            pipeline.ingest(warehouse, batches)
            assert pipeline.account(warehouse, window)[1] == []
        return warehouse

    return made


def test_a_label_that_is_read_later_makes_no_second_team(
    passes: Callable[..., Warehouse],
) -> None:
    with passes(
        (FIRST, [samples(FIRST, "web-a"), pod(FIRST, **owned())]),
        (SECOND, [samples(SECOND, "web-a"), pod(WHOLE, **owned(team="search"))]),
    ) as warehouse:
        assert by(warehouse, "team") == {"search": 12.0}
        assert by(warehouse, "workload") == {"ml/Deployment/web": 12.0}
        assert warehouse.query("FROM unposted").num_rows == 0


def test_a_pod_that_ended_before_its_workload_had_a_team_is_of_that_team(
    passes: Callable[..., Warehouse],
) -> None:
    ended: dict[str, Any] = {"finished_at": FIRST.end.replace(tzinfo=None), "phase": "Succeeded"}
    with passes(
        (FIRST, [samples(FIRST, "web-a"), pod(FIRST, **owned(), **ended)]),
        (
            SECOND,
            [samples(SECOND, "web-b"), pod(SECOND, "web-b", "u2", **owned(team="search"))],
        ),
    ) as warehouse:
        assert by(warehouse, "team") == {"search": pytest.approx(4, abs=0.1)}


def test_other_workloads_of_the_namespace_keep_its_name(
    passes: Callable[..., Warehouse],
) -> None:
    with passes(
        (
            FIRST,
            [
                samples(FIRST, "alone"),
                pod(
                    FIRST,
                    "alone",
                    "u1",
                    workload_kind="Pod",
                    workload="alone",
                    finished_at=FIRST.end.replace(tzinfo=None),
                ),
            ],
        ),
        (SECOND, [samples(SECOND, "web-b"), pod(SECOND, "web-b", "u2", **owned(team="search"))]),
    ) as warehouse:
        teams = by(warehouse, "team")
        assert teams == {"ml": pytest.approx(2, abs=0.1), "search": pytest.approx(2, abs=0.1)}


def test_a_later_label_of_another_team_leaves_the_past_as_it_was(
    passes: Callable[..., Warehouse],
) -> None:
    with passes(
        (FIRST, [samples(FIRST, "web-a"), pod(FIRST, **owned(team="ads"))]),
        (SECOND, [samples(SECOND, "web-a"), pod(WHOLE, **owned(team="search"))]),
    ) as warehouse:
        assert by(warehouse, "team")["ads"] >= 2


def test_an_owner_that_is_resolved_later_is_the_owner_of_the_first_hours_too(
    passes: Callable[..., Warehouse],
) -> None:
    below = {"owner_kind": "ReplicaSet", "owner_name": "web-5"}
    first = (FIRST, [samples(FIRST, "web-a"), pod(FIRST, **below)])
    with passes(first) as warehouse:
        assert by(warehouse, "workload") == {f"ml/{UNRESOLVED}/web-5": 2.0}
        again = [samples(SECOND, "web-a"), pod(WHOLE, **below, **owned(team="search"))]
        pipeline.ingest(warehouse, again)
        assert pipeline.account(warehouse, SECOND)[1] == []
        assert by(warehouse, "workload") == {"ml/Deployment/web": 12.0}
        assert by(warehouse, "team") == {"search": 12.0}


def test_a_pod_of_no_inventory_is_unresolved_and_a_bare_pod_is_a_pod(
    passes: Callable[..., Warehouse],
) -> None:
    bare = pod(SECOND, "lone", "u2", workload_kind="Pod", workload="lone")
    with passes(
        (FIRST, [samples(FIRST, "ghost")]), (SECOND, [samples(SECOND, "lone"), bare])
    ) as warehouse:
        workloads = by(warehouse, "workload")
        assert workloads.keys() == {f"ml/{UNRESOLVED}/ghost", "ml/Pod/lone"}
