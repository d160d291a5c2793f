"""A look at the past sees pods as they had been observed by then; later rows change nothing of it.

Also of `warehouse.past_values` and the steps of paying teams: they answer the same of each time.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import Phase, given, settings

from actions.backtest.as_of import AsOf
from capacity.placement.fleet_state import FleetState, to_micros
from fallow.tables import Batch
from tests import engine
from tests.analyzers.conftest import Memory
from warehouse.eras import store_values
from warehouse.ingest import upsert_rows
from warehouse.steps import PAYING_TEAMS, compose_query

START = datetime(2026, 11, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
FIRST, LAST = (START.replace(tzinfo=None) + n * timedelta(days=99) for n in (-1, 1))
COLUMNS = ("team", "queue", "labels", "annotations")
PODS = f"SELECT uid, {', '.join(COLUMNS)} FROM pod ORDER BY uid"


@pytest.fixture
def views() -> Iterator[Memory]:
    with engine.lent() as one:
        yield Memory(one)


@st.composite
def observed_pods(draw: st.DrawFn) -> dict[str, Any]:
    """Return one observation of a pod; null: the source does not know it."""
    team, queue = draw(st.sampled_from([None, "red", "blue"])), draw(st.sampled_from([None, "q"]))
    words = {name: value for name, value in (("team", team), ("queue", queue)) if value}
    labels = "{" + ",".join(f'"{name}":"{value}"' for name, value in words.items()) + "}"
    return {
        "team": team,
        "queue": queue,
        "labels": labels,
        "annotations": draw(st.sampled_from([None, "{}", '{"fallow.dev/keep":"true"}'])),
    }


histories = st.lists(
    st.tuples(st.integers(0, 8), st.sampled_from("ab"), observed_pods()),
    min_size=1,
    max_size=7,
    unique_by=lambda seen: seen[:2],
)


def store(views: Memory, observations: list[tuple[int, str, dict[str, Any]]]) -> None:
    """Store observations in the order of their arrival, each in a call of its own."""
    cursor = views.engine
    cursor.execute("CREATE TABLE IF NOT EXISTS unposted (bucket TIMESTAMP, cluster VARCHAR)")
    for hour, uid, values in observations:
        at = (START + hour * HOUR).replace(tzinfo=None)
        row = {
            "cluster": "c", "uid": uid, "namespace": "ns", "pod": uid, "workload_kind": "Job",
            "workload": "w", "gpu_request": 1.0, "created_at": START.replace(tzinfo=None) - HOUR,
            "first_seen": at, "last_seen": at, **values,
        }  # fmt: skip
        rows = Batch.of("pod", {name: [value] for name, value in row.items()}).rows
        store_values(cursor, rows)
        upsert_rows(cursor, "pod", rows)
        cursor.unregister("incoming")


def read_past(observations: list[tuple[int, str, dict[str, Any]]], hour: float) -> list[Any]:
    with engine.lent() as one:
        views = Memory(one)
        store(views, observations)
        rows: list[Any] = AsOf(views, START + hour * HOUR).query(PODS).to_pylist()
        return rows


@settings(max_examples=30, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(histories, st.integers(0, 8))
def test_what_is_observed_later_changes_nothing_of_the_past(
    history: list[tuple[int, str, dict[str, Any]]], hour: int
) -> None:
    """A null is not known: until a column's first value is observed it is that one."""
    at = hour + 0.5
    complete = {
        (uid, name) for seen, uid, values in history for name in COLUMNS
        if seen < at and (name in {"team", "queue"} or values[name] is not None)
    }  # fmt: skip

    def drop(rows: list[Any]) -> list[Any]:
        return [
            {name: value for name, value in row.items() if (row["uid"], name) in complete}
            for row in rows
        ]

    history = sorted(history, key=lambda seen: seen[:2])
    then = drop(read_past([seen for seen in history if seen[0] < at], at))
    assert [row for row in drop(read_past(history, at)) if row] == then


@settings(max_examples=30, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(histories, st.integers(0, 8))
def test_facts_of_a_replay_are_of_the_pods_of_then(
    history: list[tuple[int, str, dict[str, Any]]], hour: int
) -> None:
    with engine.lent() as one:
        views = Memory(one)
        store(views, sorted(history, key=lambda seen: seen[:2]))
        at = START + (hour + 0.5) * HOUR
        state = FleetState(views, START - HOUR, START + 9 * HOUR)
        pods = {pod.uid: pod for pod in state.pods(("c", "ns", "Job", "w"), to_micros(at))}
        for row in AsOf(views, at).query(PODS).to_pylist():
            if (pod := pods.get(row["uid"])) is not None:
                assert {name: getattr(pod, name) for name in COLUMNS} == {
                    name: row[name] for name in COLUMNS
                }


def read_teams(views: Memory, uid: str) -> list[tuple[datetime, datetime, str]]:
    rows = views.query(
        "SELECT greatest(holds_from, $first) AS since, least(holds_to, $last) AS until, team FROM ("
        f"{compose_query(PAYING_TEAMS)}) WHERE uid = $uid ORDER BY ALL",
        {"uid": uid, "first": FIRST, "last": LAST},
    )
    return [(row["since"], row["until"], row["team"]) for row in rows.to_pylist()]


@settings(max_examples=30, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(histories)
def test_one_team_pays_at_every_time(history: list[tuple[int, str, dict[str, Any]]]) -> None:
    with engine.lent() as one:
        views = Memory(one)
        store(views, sorted(history, key=lambda seen: seen[:2]))
        for uid in {uid for _, uid, _ in history}:
            spans = read_teams(views, uid)
            assert spans[0][0] == FIRST
            assert spans[-1][1] == LAST
            assert all(a[1] == b[0] for a, b in pairwise(spans))


def test_a_pod_without_a_team_is_of_its_workloads_team_of_then(views: Memory) -> None:
    """Job w was of team red until a later pod said blue; its launcher has no team label."""
    at = [(START + n * HOUR).replace(tzinfo=None) for n in range(9)]
    pod = {"cluster": "c", "namespace": "ns", "workload_kind": "Job", "workload": "w"}
    views.rows(
        "pod",
        [
            {**pod, "uid": "launcher", "created_at": at[0], "last_seen": at[8]},
            {**pod, "uid": "one", "team": "red", "created_at": at[1], "last_seen": at[4]},
            {**pod, "uid": "two", "team": "blue", "created_at": at[5], "last_seen": at[8]},
            {**pod, "workload": "x", "uid": "other", "created_at": at[2], "last_seen": at[8]},
        ],
    )
    assert read_teams(views, "launcher") == [(FIRST, at[5], "red"), (at[5], LAST, "blue")]
    assert [team for *_, team in read_teams(views, "other")] == ["ns"]
