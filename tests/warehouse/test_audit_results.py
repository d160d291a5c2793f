"""What readers show is what the audits of the window find, after any rewrites and audits."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import settings as tries
from hypothesis import strategies as st

from fallow.settings import Settings
from fallow.window import Window
from tests.warehouse.test_totals import HOUR, HOURS, ROW, START, write_hours
from warehouse import audit_results, audits, dirty
from warehouse.lake import Warehouse
from warehouse.stages.audit_stage import audit_due

NOW = START.replace(tzinfo=UTC) + timedelta(hours=HOURS)
SPAN = st.tuples(st.integers(0, HOURS - 1), st.integers(1, HOURS))
TIMED_ROW = st.tuples(ROW, st.sampled_from([3600.0, 4000.0])).map(
    lambda p: {**p[0], "seconds": p[1]}
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("rewrite"), SPAN, st.lists(TIMED_ROW, max_size=4)),
        st.tuples(st.sampled_from(["audit", "mark", "clear"]), SPAN, st.none()),
    ),
    min_size=2,
    max_size=5,
)
LENGTHEN = "UPDATE ledger SET seconds = 9999 WHERE bucket = $bucket"


class SteppedClock:
    """A clock that tests set."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture(scope="module")
def clock() -> SteppedClock:
    return SteppedClock()


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory, clock: SteppedClock) -> Iterator[Warehouse]:
    """Return a warehouse that all examples write."""
    settings = Settings(home=tmp_path_factory.mktemp("audits") / "home")
    with Warehouse.open_in_memory(settings, clock=clock) as opened:
        yield opened


def build_window(start: int, length: int) -> Window:
    begin = START.replace(tzinfo=UTC) + start * HOUR
    return Window(begin, begin + length * HOUR)


def corrupt_hour(warehouse: Warehouse, hour: int) -> None:
    with warehouse.transaction() as cursor:
        cursor.execute(LENGTHEN, {"bucket": START + hour * HOUR})


def write_sound_hours(warehouse: Warehouse) -> None:
    row: dict[str, Any] = {"device": "a", "state": "idle", "namespace": "red", "team": "x"}
    row |= {"gpu_seconds": 3600.0, "usd": None, "effective": 0.5}
    write_hours(warehouse, 0, HOURS, [row | {"hour": hour} for hour in range(HOURS)])


LONG_ROW = {
    "hour": 2,
    "device": "a",
    "state": "idle",
    "namespace": "",
    "team": None,
    "gpu_seconds": 3600.0,
    "usd": None,
    "effective": None,
    "seconds": 4000.0,
}


@tries(max_examples=10, deadline=None)
@example(steps=[("audit", (0, HOURS), None), ("rewrite", (2, 1), [LONG_ROW])], shown=(0, HOURS))
@given(steps=STEPS, shown=SPAN)
def test_readers_show_what_the_audits_of_the_window_find(
    warehouse: Warehouse,
    steps: list[tuple[str, tuple[int, int], list[dict[str, Any]] | None]],
    shown: tuple[int, int],
) -> None:
    for step, (start, length), rows in steps:
        window = build_window(start, length)
        if step == "rewrite":
            write_hours(warehouse, start, length, rows or [])
        elif step == "audit":
            failures = audit_results.audit_hours(warehouse, window, marked=True)
            assert failures == audits.run_audits(warehouse, window, marked=True)
        elif step == "mark":
            with warehouse.transaction() as cursor:
                dirty.mark_hours(cursor, *window.bounds().values())
        else:
            dirty.take_marks(warehouse)
            dirty.clear_marks(warehouse, window)
    for window in (build_window(*shown), build_window(0, HOURS)):
        expected = audits.run_audits(warehouse, window)
        assert audit_results.read_failures(warehouse, window) == expected


def test_hours_that_passed_are_not_read_again_until_they_are_rewritten_or_marked(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_sound_hours(warehouse)
    whole = build_window(0, HOURS)
    dirty.take_marks(warehouse)
    dirty.clear_marks(warehouse, whole)
    audit_results.audit_hours(warehouse, whole)
    ranges: list[tuple[str, datetime, datetime]] = []
    run = audits.run_audit

    def record(
        lake: Warehouse, name: str, since: datetime, until: datetime, *, marked: bool = False
    ) -> object:
        ranges.append((name, since, until))
        return run(lake, name, since, until, marked=marked)

    monkeypatch.setattr(audits, "run_audit", record)

    def list_audited() -> dict[str, tuple[int, int]]:
        ranges.clear()
        audit_results.read_failures(warehouse, whole)
        return {n: ((a - START) // HOUR, (b - START) // HOUR) for n, a, b in ranges}

    live = dict.fromkeys(audit_results.LIVE, (0, HOURS))
    assert list_audited() == live
    with warehouse.transaction() as cursor:
        dirty.mark_hours(cursor, START + HOUR, START + 2 * HOUR)
    assert list_audited() == live | dict.fromkeys(audit_results.HOURLY, (1, 2))
    ranges.clear()
    audit_results.audit_hours(warehouse, whole, marked=True)
    once = sorted((*audit_results.SEPARABLE, *audit_results.LIVE))
    assert sorted(name for name, *_ in ranges) == once
    dirty.take_marks(warehouse)
    dirty.clear_marks(warehouse, whole)
    row: dict[str, Any] = {
        "hour": 3,
        "device": "a",
        "state": "idle",
        "namespace": "red",
        "team": "x",
    }
    row |= {"gpu_seconds": 3600.0, "usd": None, "effective": 0.5}
    write_hours(warehouse, 3, 1, [row])
    midnight = 2  # START is 22:00: the day of the hour is audited from there
    hourly = dict.fromkeys(audit_results.HOURLY, (3, 4))
    assert list_audited() == live | hourly | {"ledger_totals": (midnight, HOURS)}


def test_an_hour_that_is_corrupted_after_its_audit_is_found_by_the_next_one_that_is_due(
    warehouse: Warehouse, clock: SteppedClock
) -> None:
    write_sound_hours(warehouse)
    whole = build_window(0, HOURS)
    dirty.take_marks(warehouse)
    dirty.clear_marks(warehouse, whole)
    assert audit_results.audit_hours(warehouse, whole) == []
    corrupt_hour(warehouse, 2)
    assert "ledger_capacity" in {f.audit for f in audits.run_audits(warehouse)}, "verify sees it"
    assert audit_due(warehouse) == [], "nothing is due yet"
    assert audit_results.read_failures(warehouse, whole) == []
    clock.now = NOW + audit_results.RECENT_AGE + timedelta(seconds=1)
    (failure,) = audit_due(warehouse)
    assert (failure.audit, failure.rows) == ("ledger_capacity", 1)
    (stored,) = warehouse.query("FROM audit WHERE failed <> ''").to_pylist()
    assert (stored["bucket"], stored["failed"]) == (START + 2 * HOUR, "ledger_capacity")
    assert audit_results.read_failures(warehouse, whole) == [failure]
    write_sound_hours(warehouse)
    assert audit_results.read_failures(warehouse, whole) == []
    clock.now = NOW


def test_hours_from_before_the_upgrade_are_audited_a_slice_at_a_time(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_results, "MOST_DUE_HOURS", 4)
    write_sound_hours(warehouse)  # deletes every result
    dirty.take_marks(warehouse)
    dirty.clear_marks(warehouse, build_window(0, HOURS))
    count = "SELECT count(*) AS n FROM audit SEMI JOIN ledger USING (bucket) WHERE period = '1h'"
    counts = []
    for _ in range(3):
        audit_due(warehouse)
        counts.append(warehouse.query(count)["n"][0].as_py())
    assert counts == [4, HOURS, HOURS]


def test_results_of_other_definitions_do_not_count(settings: Settings) -> None:
    with Warehouse.open_in_memory(settings, clock=lambda: NOW) as warehouse:
        write_sound_hours(warehouse)
        audit_results.audit_hours(warehouse, build_window(0, HOURS))
        corrupt_hour(warehouse, 2)
        assert audit_results.read_failures(warehouse, build_window(0, HOURS)) == []
        with warehouse.transaction() as cursor:
            cursor.execute("UPDATE audit SET digest = 'older'")
        shown = audit_results.read_failures(warehouse, build_window(0, HOURS))
        assert [f.audit for f in shown] == ["ledger_capacity"]
