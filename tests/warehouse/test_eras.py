"""What a node was from when to when, as its rows are stored."""

from datetime import UTC, datetime, timedelta
from functools import reduce
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.inventory import document
from fallow.partial_documents import mark_partial
from fallow.settings import Settings
from fallow.tables import Batch, get_schema
from warehouse.dirty import FAR
from warehouse.eras import (
    VALUES,
    Era,
    add_observation,
    list_differences,
    list_spans,
    store_places,
)
from warehouse.lake import Warehouse
from warehouse.rollup import list_places

START = datetime(2026, 11, 1)  # noqa: DTZ001  (tables hold naive UTC)
NODE: dict[str, Any] = {
    "cluster": "c",
    "node": "a",
    "uid": "one",
    "first_seen": START,
    "instance_type": "p5.48xlarge",
    "pool": "blue",
    "gpu_count": 8,
}
BRIEF = "SELECT valid_from, valid_to, instance_type, pool, gpu_count FROM era ORDER BY ALL"


def at(hours: float) -> datetime:
    return START + timedelta(hours=hours)


def observe(hours: float, *, born: float = 0, uid: str | None = "one", **values: Any) -> Era:
    listed = tuple({"pool": "blue", **values}.get(name) for name in VALUES)
    return Era(at(hours), at(hours), at(born), uid, listed)


def build(*observations: Era) -> list[Era]:
    return reduce(add_observation, observations, [])


def store(settings: Settings, *batches: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Return the stored eras after batches of rows of one node."""
    with Warehouse.open(
        settings, write=True, clock=lambda: at(100).replace(tzinfo=UTC)
    ) as warehouse:
        for rows in batches:
            listed = [NODE | row for row in rows]
            names = list(dict.fromkeys(name for row in listed for name in row))
            warehouse.ingest(
                [Batch.of("node", {name: [row.get(name) for row in listed] for name in names})]
            )
        return [tuple(row.values()) for row in warehouse.query(BRIEF).to_pylist()]


LIVES = st.lists(  # for each node that bore the name: values in turn, with hours of observation
    st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=3), min_size=1, max_size=3),
    min_size=1,
    max_size=3,
)


@given(LIVES, st.data())
def test_eras_are_the_same_in_every_order_of_arrival(
    lives: list[list[list[int]]], data: st.DataObject
) -> None:
    observed, hour = [], 0
    for number, pools in enumerate(lives):
        born = hour = hour + 1
        for pool, pauses in enumerate(pools):
            for pause in pauses:
                hour += pause
                uid = f"uid-{number}"
                observed.append(observe(hour, born=born, uid=uid, pool=str(pool)))
    eras = build(*observed)
    assert len(eras) == sum(map(len, lives))
    assert build(*data.draw(st.permutations(observed))) == eras


def test_a_name_that_is_used_again_is_another_node_from_its_creation_on() -> None:
    eras = build(observe(1), observe(5), observe(9, born=7, uid="two"))
    assert list_spans(eras) == [(at(0), at(5)), (at(7), None)]


def test_two_sources_with_a_uid_each_see_one_node() -> None:
    assert len(build(*(observe(n, uid=("one", "two")[n % 2]) for n in range(9)))) == 1


def test_an_observation_between_two_equal_ones_is_an_era_of_its_own() -> None:
    eras = build(observe(1), observe(9), observe(5, pool="red"))
    assert list_spans(eras) == [(at(0), at(5)), (at(5), at(9)), (at(9), None)]


def test_only_the_hours_in_which_a_node_was_another_one_differ() -> None:
    before = build(observe(1), observe(9))
    assert list_differences([], before) == []
    assert list_differences(before, build(*before, observe(20, pool="red"))) == [(at(20), FAR)]
    assert list_differences(before, build(*before, observe(5, pool="red"))) == [(at(5), at(9))]


def test_a_changed_row_begins_an_era_when_it_was_seen_and_the_same_row_none(
    settings: Settings,
) -> None:
    assert store(
        settings,
        [{"last_seen": at(1)}, {"last_seen": at(2)}],
        [{"last_seen": at(3)}],
        [{"last_seen": at(5), "gpu_count": 4}],
        [{"last_seen": at(6), "gpu_count": 4}],
    ) == [
        (at(0), at(5), "p5.48xlarge", "blue", 8),
        (at(5), None, "p5.48xlarge", "blue", 4),
    ]


def test_a_change_and_its_end_of_one_arrival_are_eras(settings: Settings) -> None:
    changed = {"last_seen": at(3), "gpu_count": 4}
    assert store(
        settings,
        [{"last_seen": at(1)}],
        [changed, {"last_seen": at(5)}, {"last_seen": at(9)}],
    ) == [
        (at(0), at(3), "p5.48xlarge", "blue", 8),
        (at(3), at(5), "p5.48xlarge", "blue", 4),
        (at(5), None, "p5.48xlarge", "blue", 8),
    ]


def test_a_label_that_was_removed_begins_an_era_and_one_that_is_not_shown_does_not(
    settings: Settings,
) -> None:
    assert store(
        settings,
        [{"last_seen": at(1)}],
        [{"last_seen": at(2), "pool": None}],
        [{"last_seen": at(5), "pool": ""}],
    ) == [
        (at(0), at(5), "p5.48xlarge", "blue", 8),
        (at(5), None, "p5.48xlarge", "", 8),
    ]


def test_history_that_is_imported_after_newer_rows_ends_where_these_begin(
    settings: Settings,
) -> None:
    second = {"uid": "two", "first_seen": at(12), "instance_type": "g5.xlarge", "gpu_count": 1}
    assert store(
        settings,
        [{**second, "last_seen": at(40)}],
        [{"last_seen": at(6)}, {"last_seen": at(11)}, {**second, "last_seen": at(18)}],
    ) == [
        (at(0), at(11), "p5.48xlarge", "blue", 8),
        (at(12), None, "g5.xlarge", "blue", 1),
    ]


def test_a_node_that_was_stored_before_eras_were_has_one_from_its_creation_on(
    settings: Settings,
) -> None:
    store(settings, [{"last_seen": at(10)}])
    with Warehouse.open(settings, write=True) as warehouse, warehouse.transaction() as cursor:
        cursor.execute("DELETE FROM era")
    assert store(settings, [{"last_seen": at(30), "pool": "red"}]) == [
        (at(0), at(30), "p5.48xlarge", "blue", 8),
        (at(30), None, "p5.48xlarge", "red", 8),
    ]


@pytest.mark.parametrize(("hour", "marked"), [(30, []), (8, [8, 9])])
def test_hours_that_the_ledger_has_are_written_again_only_where_the_node_was_another(
    settings: Settings, hour: int, marked: list[int]
) -> None:
    store(settings, [{"last_seen": at(5)}])
    store(settings, [{"last_seen": at(10)}])
    with Warehouse.open(settings, write=True) as warehouse, warehouse.transaction() as cursor:
        cursor.execute(
            "INSERT INTO ledger BY NAME SELECT 'c' AS \"cluster\", 'd' AS device, bucket"
            " FROM range($start::TIMESTAMP, $end::TIMESTAMP, INTERVAL 1 HOUR) AS t (bucket)",
            {"start": at(0), "end": at(20)},
        )
    store(settings, [{"last_seen": at(hour), "pool": "red"}])
    with Warehouse.open(settings) as warehouse:
        hours = warehouse.query("SELECT bucket FROM unposted ORDER BY ALL")["bucket"].to_pylist()
    assert hours == [at(n) for n in marked]


@pytest.mark.parametrize("name", VALUES)
def test_a_change_of_each_value_begins_an_era(settings: Settings, name: str) -> None:
    first, second = ("a", "b") if get_schema("era").field(name).type == pa.string() else (1, 2)
    values = [{name: first, "last_seen": at(1)}, {name: second, "last_seen": at(2)}]
    stored = store(settings, *([row] for row in values))
    assert [row[:2] for row in stored] == [(at(0), at(2)), (at(2), None)]


VALUES_BY_TIME = (
    "SELECT valid_from, valid_to, value FROM attribute_era WHERE kind = $kind ORDER BY ALL"
)


def read_values(settings: Settings, kind: str) -> list[tuple[Any, ...]]:
    with Warehouse.open(settings) as warehouse:
        rows = warehouse.query(VALUES_BY_TIME, {"kind": kind}).to_pylist()
        return [tuple(row.values()) for row in rows]


RED, BLUE = ('{"team": "red"}', "red"), ('{"team": "blue"}', "blue")
NO_TEAM, NO_LABELS = ('{"app": "x"}', None), (None, None)
RED_TO_BLUE = [(at(1), at(5), "red"), (at(5), None, "blue")]


@pytest.mark.parametrize(
    ("observations", "eras"),
    [
        pytest.param([[(1, *RED)], [(5, *BLUE)], [(6, *BLUE)]], RED_TO_BLUE, id="changed"),
        pytest.param([[(1, *RED), (5, *BLUE)]], RED_TO_BLUE, id="in-one-batch"),
        pytest.param([[(5, *BLUE)], [(1, *RED)]], RED_TO_BLUE, id="older-one-later"),
        pytest.param([[(1, *RED)], [(3, *NO_LABELS)], [(5, *BLUE)]], RED_TO_BLUE, id="unseen"),
        pytest.param(
            [[(1, *RED)], [(5, *NO_TEAM)]],
            [(at(1), at(5), "red"), (at(5), None, "")],
            id="removed",
        ),
        pytest.param(
            [[(1, *RED)], [(5, *BLUE)], [(9, *RED)]],
            [(at(1), at(5), "red"), (at(5), at(9), "blue"), (at(9), None, "red")],
            id="back-again",
        ),
        pytest.param(
            [[(1, *NO_TEAM)], [(5, *RED)]],
            [(at(1), at(5), ""), (at(5), None, "red")],
            id="first-team",
        ),
        pytest.param([[(1, *RED)], [(5, *RED)]], [], id="same"),
    ],
)
def test_a_pod_is_of_each_team_from_its_observation_on(
    settings: Settings,
    observations: list[list[tuple[int, str | None, str | None]]],
    eras: list[tuple[Any, ...]],
) -> None:
    with Warehouse.open(
        settings, write=True, clock=lambda: at(100).replace(tzinfo=UTC)
    ) as warehouse:
        for rows in observations:
            columns: dict[str, object] = {
                "cluster": ["c"] * len(rows),
                "uid": ["u"] * len(rows),
                "last_seen": [at(hour) for hour, _, _ in rows],
                "first_seen": [at(hour) for hour, _, _ in rows],
                "labels": [labels for _, labels, _ in rows],
                "team": [team for _, _, team in rows],
            }
            warehouse.ingest([Batch.of("pod", columns)])
    assert read_values(settings, "pod.team") == eras


def test_buckets_of_a_card_that_comes_back_are_listed_one_by_one() -> None:
    buckets = [("x", "a", 1), ("x", "b", 2), ("x", "b", 3), ("x", "a", 4), ("y", "a", 1)]
    names = [{"device": d, "node": n, "bucket": at(h), "cluster": "c"} for d, n, h in buckets]
    listed = list_places(pa.Table.from_pylist([*names, names[-1] | {"bucket": at(9)}]))
    assert sorted(
        (row["device"], row["node"], row["first_seen"], row["last_seen"])
        for row in listed.to_pylist()
    ) == [
        ("x", "a", at(1), at(1)),
        ("x", "a", at(4), at(4)),
        ("x", "b", at(2), at(2)),
        ("x", "b", at(3), at(3)),
        ("y", "a", at(1), at(9)),
    ]


@pytest.mark.parametrize(
    ("refreshes", "eras"),
    [
        pytest.param([[("a", 1, 2)], [("a", 3, 4)]], [], id="stays"),
        pytest.param(
            [[("a", 1, 2)], [("b", 4, 5)]],
            [(at(1), at(4), "a"), (at(4), None, "b")],
            id="moved",
        ),
        pytest.param(
            [[("a", 1, 2), ("b", 4, 5)]],
            [(at(1), at(4), "a"), (at(4), None, "b")],
            id="moved-within-a-refresh",
        ),
        pytest.param([[("a", 1, 4), ("b", 2, 5)]], [], id="two-at-once"),
        pytest.param([[("ababa"[n], n, n) for n in range(5)]], [], id="two-in-turns"),
        pytest.param(
            [[("aabba"[n - 1], n, n) for n in range(1, 6)]],
            [(at(1), at(3), "a"), (at(3), at(5), "b"), (at(5), None, "a")],
            id="back-within-a-refresh",
        ),
        pytest.param(
            [[("a", 1, 2)], [("b", 4, 5)], [("a", 1, 2)]],
            [(at(1), at(4), "a"), (at(4), None, "b")],
            id="late-rows-of-before",
        ),
    ],
)
def test_a_device_is_on_each_node_from_its_first_bucket_there_on(
    settings: Settings,
    refreshes: list[list[tuple[str, int, int]]],
    eras: list[tuple[Any, ...]],
) -> None:
    with Warehouse.open(
        settings, write=True, clock=lambda: at(100).replace(tzinfo=UTC)
    ) as warehouse:
        for places in refreshes:
            columns: dict[str, object] = {
                "cluster": ["c"] * len(places),
                "device": ["GPU-0"] * len(places),
                "node": [node for node, _, _ in places],
                "first_seen": [at(first) for _, first, _ in places],
                "last_seen": [at(last) for _, _, last in places],
            }
            batch = Batch.of("device", columns)
            with warehouse.transaction() as cursor:
                store_places(cursor, batch.rows.select(list(columns)))
            warehouse.ingest([batch])
    assert read_values(settings, "device.node") == eras


def note(
    hour: int, keep: bool | None, *, born: int | None = None, labels: str | None = "{}"
) -> dict[str, Any]:
    """Return what a source says of a pod: whether it is kept, if the source shows annotations."""
    notes = {None: None, True: '{"fallow.dev/keep":"true"}', False: "{}"}
    first = hour if born is None else born
    return {"uid": "u", "first_seen": at(first), "last_seen": at(hour), "labels": labels} | {
        "annotations": notes[keep]
    }


@pytest.mark.parametrize(
    ("imports", "kept"),
    [
        pytest.param(
            # The newest hours first; before, the source showed no annotations for a while.
            [[note(18, keep=True, born=12)], [note(6, None, born=0), note(9, keep=False, born=0)]],
            [(9, False), (18, True)],
            id="history-after-newer-rows",
        ),
        pytest.param(
            [[note(2, None), note(12, keep=True)], [note(18, keep=True)], [note(6, keep=False)]],
            [(6, False), (12, True)],
            id="unseen-at-first",
        ),
        pytest.param(
            [
                [note(0, keep=False), note(6, keep=True)],
                [note(24, keep=True)],
                [note(hour, keep=hour != 12) for hour in (9, 12, 15)],
            ],
            [(0, False), (6, True), (12, False), (15, True)],
            id="back-within-an-import",
        ),
    ],
)
def test_a_mark_holds_from_its_own_observation_on_in_every_order_of_imports(
    settings: Settings, imports: list[list[dict[str, Any]]], kept: list[tuple[int, bool]]
) -> None:
    with Warehouse.open(
        settings, write=True, clock=lambda: at(100).replace(tzinfo=UTC)
    ) as warehouse:
        for rows in imports:
            names: dict[str, object] = {"cluster": ["c"] * len(rows)}
            columns: dict[str, object] = {n: [row[n] for row in rows] for n in rows[0]}
            warehouse.ingest([Batch.of("pod", names | columns)])
    eras = read_values(settings, "pod.annotations")
    assert [(start, "keep" in value) for start, _, value in eras] == [
        (at(hour), keep) for hour, keep in kept
    ]


def test_sources_that_show_different_marks_in_turns_take_none_from_each_other(
    settings: Settings,
) -> None:
    """An API has all marks; metrics show one key, which a neighbour has, by its spelling."""
    whole = {"fallow.dev/keep": "true", "app.kubernetes.io/name": "x"}
    text = document(whole)
    turns = [
        [("u", text)],
        [
            ("u", mark_partial('{"app_kubernetes_io_name":"x"}', [])),
            ("v", mark_partial('{"shown":"1"}', [])),
        ],
    ]
    with Warehouse.open(
        settings, write=True, clock=lambda: at(100).replace(tzinfo=UTC)
    ) as warehouse:
        for hour in range(6):
            rows = turns[hour % 2]
            for column in ("labels", "annotations"):
                columns: dict[str, object] = {
                    "cluster": ["c"] * len(rows),
                    "uid": [uid for uid, _ in rows],
                    "last_seen": [at(hour)] * len(rows),
                    column: [text for _, text in rows],
                }
                warehouse.ingest([Batch.of("pod", columns)])
        (stored,) = warehouse.query(
            "SELECT labels, annotations FROM pod WHERE uid = 'u'"
        ).to_pylist()
        assert stored == {"labels": text, "annotations": text}
        assert not warehouse.query("FROM attribute_era").num_rows
        lost = {"last_seen": [at(9)], "annotations": [mark_partial("{}", ["fallow.dev/keep"])]}
        warehouse.ingest([Batch.of("pod", {"cluster": ["c"], "uid": ["u"], **lost})])
    assert read_values(settings, "pod.annotations") == [
        (at(0), at(9), text),
        (at(9), None, '{"app.kubernetes.io/name":"x"}'),
    ]
