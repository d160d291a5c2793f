"""Audits as slices store and return what one process does, also where hours change meanwhile."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from fallow.errors import UnreadableDaysError
from fallow.window import Window
from tests.copies import copied
from tests.warehouse import test_stages
from tests.warehouse.stage_tasks import KillsFirst, find_window, widen
from tests.warehouse.test_stage_kills import read_audits
from tests.warehouse.test_stages import InProcess, assert_equal, open_settings
from warehouse import audit_results, audits, dirty, totals
from warehouse.audit_results import audit_hours
from warehouse.lake import Warehouse
from warehouse.runners.local import LocalRunner
from warehouse.runners.slices import StageSlice
from warehouse.stages.audit_stage import audit_due, audit_stage, run_audits_stage
from warehouse.stages.ledger_stage import write_ledger_stage

demo = test_stages.demo
LENGTHEN = "UPDATE ledger SET seconds = 9999 WHERE bucket = $bucket"
DOUBLE = "UPDATE rate SET node_usd_h = 2 * node_usd_h, gpu_usd_h = 2 * gpu_usd_h"


@pytest.fixture
def wh(demo: Path, tmp_path: Path) -> Iterator[Warehouse]:
    with Warehouse.open(open_settings(copied(demo, tmp_path / "home")), write=True) as warehouse:
        yield warehouse


def test_days_as_slices_find_and_store_what_one_process_does(wh: Warehouse) -> None:
    window = widen(find_window(wh))
    hour = window.start.astimezone(UTC).replace(tzinfo=None) + timedelta(hours=6)
    with wh.transaction() as cursor:
        cursor.execute(LENGTHEN, {"bucket": hour})
    failures = audit_hours(wh, window, marked=True)
    assert "ledger_capacity" in {failure.audit for failure in failures}
    stored = read_audits(wh)
    runner = InProcess()
    assert audit_stage(wh, window, runner, marked=True) == failures
    assert len(runner.slices) == 2, "the window has a midnight"
    assert_equal(stored, read_audits(wh))


def test_all_audits_as_slices_find_what_one_process_does(wh: Warehouse) -> None:
    runner = InProcess()
    assert run_audits_stage(wh, runner) == []
    assert len(runner.slices) == 2, "the ledger has a midnight"
    hour = find_window(wh).start.astimezone(UTC).replace(tzinfo=None) + timedelta(hours=6)
    with wh.transaction() as cursor:
        cursor.execute(LENGTHEN, {"bucket": hour})
        cursor.execute("DELETE FROM ledger_1d")
    failures = audits.run_audits(wh)
    assert {"ledger_capacity", "ledger_totals"} <= {failure.audit for failure in failures}
    assert run_audits_stage(wh, InProcess()) == failures
    assert run_audits_stage(wh) == failures


@pytest.fixture(
    scope="module",
    # Two processes cover the same; `.ci/ray` runs the stages on Ray.
    params=[2, *(pytest.param(n, marks=pytest.mark.long) for n in (1, 4))],
)
def workers(request: pytest.FixtureRequest) -> Iterator[LocalRunner]:
    runner = LocalRunner(request.param)
    yield runner
    runner.close()


def damage(wh: Warehouse) -> None:
    """Make audits of hours and of days fail."""
    start = find_window(wh).start.replace(tzinfo=None)
    with wh.transaction() as cursor:
        for hours in (2, 20):
            cursor.execute(LENGTHEN, {"bucket": start + timedelta(hours=hours)})
        cursor.execute("DELETE FROM ledger_1d")


def make_due(wh: Warehouse) -> None:
    """Delete all results, and mark hours, so that a day has two stretches that are due."""
    start = find_window(wh).start.replace(tzinfo=None)
    with wh.transaction() as cursor:
        cursor.execute("DELETE FROM audit")
        dirty.mark_hours(cursor, start + timedelta(hours=3), start + timedelta(hours=11))
    assert len(audit_results.list_due(wh)) == 2


def test_all_audits_in_processes_find_what_one_process_does(
    wh: Warehouse, workers: LocalRunner
) -> None:
    assert run_audits_stage(wh, lambda _: workers) == []
    damage(wh)
    failures = audits.run_audits(wh)
    assert {"ledger_capacity", "ledger_totals"} <= {failure.audit for failure in failures}
    assert run_audits_stage(wh, lambda _: workers) == failures


def test_due_audits_in_processes_store_what_one_process_does(
    wh: Warehouse, workers: LocalRunner, tmp_path: Path
) -> None:
    make_due(wh)
    damage(wh)
    failures = audit_due(wh)
    assert {"ledger_capacity", "ledger_totals"} <= {failure.audit for failure in failures}
    stored = read_audits(wh)
    assert audit_due(wh, lambda _: workers) == [], "nothing is due any more"

    for runner in (lambda _: workers, KillsFirst(tmp_path / "killed")):
        with wh.transaction() as cursor:
            cursor.execute("DELETE FROM audit")
        assert audit_due(wh, runner) == failures
        assert_equal(stored, read_audits(wh))
    assert (tmp_path / "killed").exists()


def test_due_hours_that_change_while_slices_run_are_audited_as_they_are_now(wh: Warehouse) -> None:
    def change() -> None:
        with wh.transaction() as cursor:
            cursor.execute(DOUBLE)

    make_due(wh)
    runner = InProcess(between=change)
    assert "bill_sum" in {failure.audit for failure in audit_due(wh, runner)}
    assert len(runner.slices) == 2


def test_hours_that_change_while_slices_run_are_audited_as_they_are_now(wh: Warehouse) -> None:
    window = widen(find_window(wh))

    def change() -> None:
        with wh.transaction() as cursor:
            cursor.execute(DOUBLE)

    assert audit_stage(wh, window, marked=True) == []
    failures = audit_stage(wh, window, InProcess(between=change), marked=True)
    assert failures == audit_hours(wh, window, marked=True)
    assert "bill_sum" in {failure.audit for failure in failures}


def fail_away(part: StageSlice) -> int:
    """Fail as a worker does that needs archived days."""
    raise UnreadableDaysError([part.start.date()], "s3://cold")


def test_archived_days_that_are_away_are_no_fault_of_a_slice(wh: Warehouse) -> None:
    window = find_window(wh)
    parts = [StageSlice("", window.start, window.end)]
    runner = LocalRunner(1)
    try:
        with pytest.raises(UnreadableDaysError, match=r"archived in s3://cold") as caught:
            runner.map(fail_away, parts)
    finally:
        runner.close()
    assert caught.value.days == (window.start.date(),)
    assert caught.value.hint

    class Away(InProcess):
        def map(self, *_: object) -> list[object]:  # type: ignore[override]
            raise caught.value

    rows = wh.query("FROM ledger").num_rows
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("warehouse.stages.ledger_stage.compute_stride", lambda _: timedelta(hours=7))
        assert write_ledger_stage(wh, window, Away()) == rows
    assert audit_stage(wh, widen(window), Away()) == []


def test_totals_are_written_a_day_at_a_time(wh: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    spans: list[tuple[datetime, datetime]] = []
    write = totals._write_totals

    def note(cursor: Any, since: datetime, until: datetime) -> None:
        spans.append((since, until))
        write(cursor, since, until)

    monkeypatch.setattr(totals, "_write_totals", note)
    monkeypatch.setattr(
        "warehouse.stages.ledger_stage.compute_stride", lambda _: timedelta(hours=7)
    )
    window = find_window(wh)
    with wh.transaction() as cursor:
        cursor.execute(
            "INSERT INTO ledger SELECT * REPLACE (bucket - INTERVAL 1 DAY AS bucket) FROM ledger"
        )
    write_ledger_stage(wh, Window(window.start - timedelta(days=1), window.end), InProcess())
    days = [window.start.date() - timedelta(days=1), window.start.date()]
    assert [(since.date(), until.date()) for since, until in spans] == [(d, d) for d in days]
