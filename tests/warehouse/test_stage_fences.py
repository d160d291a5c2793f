"""What a stage may not overwrite or remove: rows of other writers, and files of a commit."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import duckdb
import pytest

from fallow.errors import TemporaryError
from tests.copies import copied
from tests.warehouse import test_stages
from tests.warehouse.stage_tasks import find_window
from tests.warehouse.test_stages import (
    START,
    InProcess,
    assert_equal,
    build_samples,
    get_now,
    open_settings,
    read_ledger,
    read_rolled,
)
from warehouse.data_files import DataFiles
from warehouse.lake import Warehouse
from warehouse.ledger import write_ledger
from warehouse.maintenance import compact_warehouse
from warehouse.rollup import roll_up
from warehouse.stages import ledger_stage
from warehouse.stages.ledger_stage import write_ledger_stage
from warehouse.stages.rollup_stage import roll_up_stage

sampled = test_stages.sampled
small_slices = test_stages.small_slices
demo = test_stages.demo


@pytest.fixture
def wh(sampled: Path, tmp_path: Path) -> Iterator[Warehouse]:
    with Warehouse.open(
        open_settings(copied(sampled, tmp_path / "home")), write=True, clock=get_now
    ) as warehouse:
        yield warehouse


def test_late_samples_that_another_writer_rolled_up_are_not_overwritten(wh: Warehouse) -> None:
    def write() -> None:
        wh.ingest([build_samples("one", range(31, 32), 50)])
        roll_up(wh)

    roll_up_stage(wh, InProcess(between=write))
    late = {"first": START + timedelta(minutes=30)}
    sql = "SELECT device FROM rollup_5m WHERE bucket = $first AND device = 'GPU-45' AND n > 0"
    assert wh.query(sql, late).num_rows == 1
    rolled = read_rolled(wh)
    roll_up_stage(wh, InProcess())
    assert_equal(rolled, read_rolled(wh))


def test_a_compaction_while_slices_run_is_no_change(wh: Warehouse) -> None:
    roll_up_stage(wh, InProcess())
    wh.ingest([build_samples("one", range(60), 50)])
    assert roll_up_stage(wh, InProcess(between=lambda: compact_warehouse(wh))) > 0
    assert wh.query("FROM dirty").num_rows == 0


def test_a_commit_whose_answer_is_lost_keeps_its_files(
    wh: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = DataFiles.commit

    def lose(files: DataFiles, cursor: duckdb.DuckDBPyConnection, since: int) -> None:
        commit(files, cursor, since)
        raise duckdb.IOException("server closed the connection unexpectedly")

    monkeypatch.setattr(DataFiles, "commit", lose)
    with pytest.raises(TemporaryError, match="server closed the connection"):
        roll_up_stage(wh, InProcess())
    monkeypatch.undo()
    rolled = read_rolled(wh)
    assert rolled["rollup_5m"].height
    roll_up(wh)
    assert_equal(rolled, read_rolled(wh))


def test_a_ledger_that_another_writer_wrote_meanwhile_is_not_overwritten(
    demo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_stage, "compute_stride", lambda _: timedelta(hours=7))
    with Warehouse.open(open_settings(copied(demo, tmp_path / "home")), write=True) as wh:
        window = find_window(wh)

        def account() -> None:
            with wh.transaction() as cursor:
                cursor.execute("UPDATE allocation SET team = 'renamed'")
            write_ledger(wh, window)

        write_ledger_stage(wh, window, InProcess(between=account))
        after = read_ledger(wh)
        assert "renamed" in set(after["ledger"]["team"])
        write_ledger(wh, window)
        assert_equal(after, read_ledger(wh))
