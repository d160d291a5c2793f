"""A tier move never hides a row and never doubles one, wherever it is interrupted."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from fallow.errors import TemporaryError
from fallow.settings import Settings
from fallow.tables import Batch
from warehouse import tiers
from warehouse.lake import Warehouse
from warehouse.orphans import OrphanCounts, count_orphans, sweep_orphans
from warehouse.rollup import roll_up

STEPS = ("copied", "put", "verified", "registered", "deleted", "committed")
OLD = datetime(2026, 11, 10, 6, 0)  # noqa: DTZ001


class Crash(BaseException):
    """Stands for the end of the process: nothing in the house may catch it."""


@pytest.fixture
def wh(settings: Settings, now: datetime) -> Iterator[Warehouse]:
    with Warehouse.open(settings, write=True, clock=lambda: now) as warehouse:
        warehouse.ingest([looks()])
        yield warehouse


def looks(start: datetime = OLD, days: int = 12, device: str = "GPU-0") -> Batch:
    """Return one look every 6 hours, for days that end after now."""
    instants = [start + timedelta(hours=6 * k) for k in range(4 * days - 8)]
    n = len(instants)
    return Batch.of(
        "sample",
        {
            "cluster": ["test"] * n,
            "ts": instants,
            "device": [device] * n,
            "interval_s": [60.0] * n,
            "gpu_util_pct": [float(k) for k in range(n)],
        },
    )


def everything(wh: Warehouse, table: str = "sample") -> pa.Table:
    return wh.query(f"FROM {table} ORDER BY ALL")


def in_lake(wh: Warehouse, table: str = "sample") -> int:
    with wh.transaction() as cursor:
        row = cursor.execute(f"SELECT count(*) FROM lake.main.{table}").fetchone()
    assert row is not None
    return int(row[0])


def test_old_days_move_and_one_query_crosses_the_boundary(wh: Warehouse, now: datetime) -> None:
    before = everything(wh)
    moved = tiers.move_to_cold(wh, now)
    assert moved.files == 3
    assert in_lake(wh) + moved.rows == before.num_rows
    assert everything(wh).equals(before)
    across = wh.query(
        "SELECT count(*) AS n FROM sample WHERE ts >= $a AND ts < $b",
        {"a": datetime(2026, 11, 12, tzinfo=UTC), "b": datetime(2026, 11, 14, tzinfo=UTC)},
    )
    assert across["n"].to_pylist() == [8]
    assert tiers.move_to_cold(wh, now) == tiers.MoveResult()
    assert [p.name for p in Path(wh.settings.home / "cold" / "sample").iterdir()] == [
        "month=2026-11"
    ]


def test_another_reader_sees_the_same_rows_before_and_after(
    wh: Warehouse, settings: Settings, now: datetime
) -> None:
    before = everything(wh)
    with Warehouse.open(settings) as reader:
        assert everything(reader).equals(before)
        tiers.move_to_cold(wh, now)
        assert everything(reader).equals(before)


@pytest.mark.parametrize("step", STEPS)
def test_a_crash_at_any_step_hides_and_doubles_nothing(
    wh: Warehouse, now: datetime, step: str
) -> None:
    before = everything(wh)

    def crash(reached: str) -> None:
        if reached == step:
            raise Crash

    for _ in range(2):
        with pytest.raises(Crash):
            tiers.move_to_cold(wh, now, on_step=crash)
        assert everything(wh).equals(before)
    tiers.move_to_cold(wh, now)
    assert everything(wh).equals(before)
    assert wh.query("SELECT sum(row_count) AS n FROM cold_file")["n"][0].as_py() == (
        before.num_rows - in_lake(wh)
    )


KILLED = """
import os, signal, sys
from datetime import datetime, UTC
from pathlib import Path
from fallow.settings import load
from warehouse import tiers
from warehouse.lake import Warehouse

home, step, now = sys.argv[1], sys.argv[2], datetime(2026, 11, 20, 12, tzinfo=UTC)
settings = load(environ={}, flags={"home": Path(home), "cluster": "test"}).settings
def kill(reached):
    if reached == step:
        os.kill(os.getpid(), signal.SIGKILL)
with Warehouse.open(settings, write=True, clock=lambda: now) as wh:
    tiers.move_to_cold(wh, now, on_step=kill)
"""


# test_a_crash_at_any_step_hides_and_doubles_nothing ends each step, in this process.
AT_OTHERS = [pytest.param(step, marks=pytest.mark.long) for step in ("put", "committed")]


@pytest.mark.parametrize("step", ["deleted", *AT_OTHERS])
def test_kill_9_at_a_step_hides_and_doubles_nothing(
    settings: Settings, now: datetime, step: str
) -> None:
    with Warehouse.open(settings, write=True, clock=lambda: now) as wh:
        wh.ingest([looks()])
        before = everything(wh)
    command = [sys.executable, "-c", KILLED, str(settings.home), step]
    done = subprocess.run(command, check=False, cwd=Path(__file__).parents[2])
    assert done.returncode == -signal.SIGKILL
    with Warehouse.open(settings) as reader:
        assert everything(reader).equals(before)
    with Warehouse.open(settings, write=True, clock=lambda: now) as wh:
        tiers.move_to_cold(wh, now)
        assert everything(wh).equals(before)


def test_late_rows_of_an_archived_day_join_it_once(wh: Warehouse, now: datetime) -> None:
    tiers.move_to_cold(wh, now)
    again = wh.ingest([looks(), looks(device="GPU-1")])
    assert again.duplicates == looks().rows.num_rows
    both = everything(wh)
    assert both.num_rows == 2 * looks().rows.num_rows
    tiers.move_to_cold(wh, now)
    assert everything(wh).equals(both)
    assert wh.query("SELECT day FROM cold_file").num_rows == 6


def test_rows_that_come_while_a_day_is_archived_are_kept(wh: Warehouse, now: datetime) -> None:
    def arrive(reached: str) -> None:
        if reached == "put":
            wh.ingest([looks(device="GPU-1")])

    with pytest.raises(TemporaryError, match="changed while"):
        tiers.move_to_cold(wh, now, on_step=arrive)
    both = everything(wh)
    assert both.num_rows == 2 * looks().rows.num_rows
    tiers.move_to_cold(wh, now)
    assert everything(wh).equals(both)


def test_rollups_move_and_a_late_row_refreshes_an_archived_bucket(
    settings: Settings, now: datetime
) -> None:
    with Warehouse.open(settings, write=True, clock=lambda: now) as wh:
        wh.ingest([looks(days=3)])
        roll_up(wh)
        _refresh_an_archived_bucket(wh, now)


def _refresh_an_archived_bucket(wh: Warehouse, now: datetime) -> None:
    later = now + timedelta(days=60)
    five, hour = everything(wh, "rollup_5m"), everything(wh, "rollup_1h")
    tiers.move_to_cold(wh, later)
    assert in_lake(wh, "rollup_5m") < five.num_rows
    assert everything(wh, "rollup_5m").equals(five)
    assert everything(wh, "rollup_1h").equals(hour)
    late = Batch.of(
        "sample",
        {
            "cluster": ["test"],
            "ts": [OLD + timedelta(seconds=61)],
            "device": ["GPU-0"],
            "interval_s": [60.0],
            "gpu_util_pct": [1.0],
        },
    )
    wh.ingest([late])
    roll_up(wh)
    counts = wh.query("SELECT n FROM rollup_5m WHERE bucket = $b", {"b": OLD})
    assert counts["n"].to_pylist() == [2]
    assert everything(wh, "rollup_5m").num_rows == five.num_rows
    tiers.move_to_cold(wh, later)
    assert wh.query("SELECT sum(n) AS n FROM rollup_1h")["n"][0].as_py() == len(everything(wh))


def test_only_the_months_asked_for_are_opened(wh: Warehouse, now: datetime) -> None:
    wh.ingest([looks(start=datetime(2026, 10, 3))])  # noqa: DTZ001
    tiers.move_to_cold(wh, now)
    for path in wh.query("SELECT path FROM cold_file WHERE day < '2026-11-01'")["path"].to_pylist():
        # The footer stays, so that the view binds; the pages are gone.
        size = Path(path).stat().st_size
        tail = Path(path).read_bytes()[-(size - 64) :]
        Path(path).write_bytes(b"PAR1" + b"\0" * 60 + tail)
    rows = wh.query("SELECT sum(gpu_util_pct) AS x FROM sample WHERE ts >= '2026-11-01'")
    assert rows["x"][0].as_py() is not None


def test_an_archived_file_that_was_never_named_waits_for_a_person(
    wh: Warehouse, now: datetime
) -> None:
    tiers.move_to_cold(wh, now)
    before = everything(wh)
    kept = [Path(p) for p in wh.query("SELECT path FROM cold_file")["path"].to_pylist()]
    orphan = kept[0].with_name("sample-20261110-0000-0.parquet")
    orphan.write_bytes(b"left by a crash")
    start = datetime.now(UTC)
    for days in (0, 3, 20):
        wh.clock = lambda days=days: start + timedelta(days=days)  # type: ignore[misc]
        assert sweep_orphans(wh) == 0
    assert count_orphans(wh) == OrphanCounts(1, 1, str(orphan))
    assert sweep_orphans(wh, is_approved=True) == 1
    assert not orphan.exists()
    assert everything(wh).equals(before)
