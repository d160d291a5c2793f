"""Compaction loses nothing wherever it is interrupted, and no reader notices it."""

import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from fallow.errors import WarehouseError
from fallow.settings import Settings
from fallow.tables import Batch
from tests.copies import copied
from tests.warehouse.conftest import Reading
from warehouse import maintenance, schema, tiers
from warehouse.lake import Warehouse
from warehouse.verification import verify_warehouse

START = datetime(2026, 11, 19, 23, 0)  # noqa: DTZ001
LOOKS, DEVICES = 12, 5


class Crash(BaseException):
    """Stands for the end of the process: nothing in the house may catch it."""


class Clock:
    """The real moment (the catalog stamps with it), moved on by a test."""

    ahead = timedelta()

    def __call__(self) -> datetime:
        return datetime.now(UTC) + self.ahead


def look(number: int, table: str = "sample") -> Batch:
    """Return one look at every device, 10 minutes after the one before."""
    return Batch.of(
        table,
        {
            "cluster": ["test"] * DEVICES,
            "ts": [START + timedelta(minutes=10 * number)] * DEVICES,
            "device": [f"GPU-{i}" for i in range(DEVICES)],
            "interval_s": [600.0] * DEVICES,
            "gpu_util_pct": [None, *[float(number)] * (DEVICES - 1)],
            "power_w": [70.5] * DEVICES,
        },
    )


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(scope="module")
def small_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the home of a warehouse of small files over two days, one with deleted rows."""
    settings = Settings(home=tmp_path_factory.mktemp("small") / "home", cluster="test")
    with Warehouse.open(settings, write=True, clock=Clock()) as warehouse:
        for number in range(LOOKS):
            warehouse.ingest([look(number)])
        with warehouse.transaction() as cursor:
            cursor.execute("DELETE FROM sample WHERE device = 'GPU-4' AND ts < '2026-11-19 23:20'")
    return settings.home


@pytest.fixture
def wh(settings: Settings, clock: Clock, small_files: Path) -> Iterator[Warehouse]:
    """Return a warehouse of small files of a test's own."""
    copied(small_files, settings.home)
    with Warehouse.open(settings, write=True, clock=clock) as warehouse:
        yield warehouse


def everything(wh: Warehouse) -> pa.Table:
    return wh.query("FROM sample ORDER BY ALL")


def on_disk(wh: Warehouse) -> set[Path]:
    return set(Path(wh.place.data, "main", "sample").rglob("*.parquet"))


def lying(wh: Warehouse, tier: str) -> list[dict[str, object]]:
    return [row for row in maintenance.read_status(wh).to_pylist() if row["tier"] == tier]


def test_small_files_become_one_a_day_and_again_changes_nothing(wh: Warehouse) -> None:
    before = everything(wh)
    done = maintenance.compact_warehouse(wh)
    assert (done.rewritten, done.removed, done.orphans) == (2, 0, 0)
    assert lying(wh, "hot")[0]["files"] == 2
    assert everything(wh).equals(before)
    files = on_disk(wh)
    again = maintenance.compact_warehouse(wh)
    assert again == maintenance.CompactionResult()
    assert on_disk(wh) == files


def test_what_was_replaced_goes_at_once_where_no_other_process_reads(wh: Warehouse) -> None:
    before, files = everything(wh), on_disk(wh)
    maintenance.compact_warehouse(wh)
    assert on_disk(wh) > files
    maintenance.compact_warehouse(wh, is_shared=False)
    assert len(on_disk(wh)) == 2
    assert lying(wh, "retired")[0]["files"] == 0
    with wh.snapshot() as cursor:
        known = "SELECT count(*) FROM __ducklake_metadata_lake.ducklake_file_column_stats AS s"
        ended = f"{known} WHERE s.data_file_id NOT IN (FROM live)"
        live = "SELECT data_file_id FROM __ducklake_metadata_lake.ducklake_data_file"
        assert cursor.execute(f"WITH live AS ({live}) {ended}").fetchone() == (0,)
    assert everything(wh).equals(before)


def test_what_was_replaced_stays_for_a_day_and_goes_after(wh: Warehouse, clock: Clock) -> None:
    before = everything(wh)
    files = on_disk(wh)
    maintenance.compact_warehouse(wh)
    # With a SQLite catalog `older_than` knows days only: an hour must not mean the whole day.
    for ahead in (timedelta(hours=1), timedelta(hours=23, minutes=59)):
        clock.ahead = ahead
        assert maintenance.compact_warehouse(wh).removed == 0
        assert on_disk(wh) > files
    clock.ahead = timedelta(days=2)
    maintenance.compact_warehouse(wh)  # forgets the snapshots, and then removes their files
    assert not on_disk(wh) & files
    assert len(on_disk(wh)) == 2
    assert lying(wh, "retired")[0]["files"] == 0
    assert everything(wh).equals(before)


def steps(wh: Warehouse) -> list[str]:
    heard: list[str] = []
    maintenance.compact_warehouse(wh, on_step=heard.append)
    return heard


EVERY_STEP = (
    "expire_snapshots done",
    "expire_snapshots committed",
    "cleanup_old_files done",
    "cleanup_old_files committed",
    "rewrite_data_files sample done",
    "rewrite_data_files sample committed",
    "merge_adjacent_files sample done",
    "merge_adjacent_files sample committed",
    "orphans swept",
)


def test_the_steps_are_all_known(wh: Warehouse) -> None:
    assert tuple(steps(wh)) == EVERY_STEP


@pytest.mark.parametrize("days", [0, 3], ids=["fresh files", "files to remove"])
def test_a_crash_at_any_step_loses_nothing(wh: Warehouse, clock: Clock, days: int) -> None:
    before = everything(wh)
    if days:
        maintenance.compact_warehouse(wh)
        for number in range(LOOKS):
            wh.ingest([look(LOOKS + number)])
        before = everything(wh)
    clock.ahead = timedelta(days=days)
    for step in EVERY_STEP:

        def crash(reached: str, step: str = step) -> None:
            if reached == step:
                raise Crash

        try:
            maintenance.compact_warehouse(wh, on_step=crash)
        except Crash:
            assert everything(wh).equals(before)
    maintenance.compact_warehouse(wh)
    assert everything(wh).equals(before)
    assert lying(wh, "hot")[0]["files"] == 2


_KILLED = """
import os, signal, sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from fallow.settings import load
from warehouse import maintenance
from warehouse.lake import Warehouse
from warehouse.verification import verify_warehouse

home, step, days = sys.argv[1], sys.argv[2], int(sys.argv[3])
settings = load(environ={}, flags={"home": Path(home), "cluster": "test"}).settings
def kill(reached):
    if reached == step:
        os.kill(os.getpid(), signal.SIGKILL)
now = lambda: datetime.now(UTC) + timedelta(days=days)
with Warehouse.open(settings, write=True, clock=now) as wh:
    maintenance.compact_warehouse(wh, on_step=kill)
"""


@pytest.mark.parametrize(
    ("step", "days"),
    [
        # test_a_crash_at_any_step_loses_nothing ends each step, in this process.
        pytest.param("rewrite_data_files sample done", 0, marks=pytest.mark.long),
        pytest.param("merge_adjacent_files sample done", 0, marks=pytest.mark.long),
        ("merge_adjacent_files sample committed", 0),
        ("cleanup_old_files done", 3),
    ],
)
def test_kill_9_at_a_step_loses_nothing(
    settings: Settings,
    wh: Warehouse,
    step: str,
    days: int,
    process: Callable[..., subprocess.Popen[str]],
) -> None:
    before = everything(wh)
    if days:
        maintenance.compact_warehouse(wh)
    wh.close()
    killed = process(_KILLED, settings.home, step, days)
    killed.communicate(timeout=60)
    assert killed.returncode == -signal.SIGKILL
    with Warehouse.open(settings) as reader:
        assert everything(reader).equals(before)
    later = Clock()
    later.ahead = timedelta(days=days)
    with Warehouse.open(settings, write=True, clock=later) as writer:
        maintenance.compact_warehouse(writer)
        assert everything(writer).equals(before)
        for ahead in (3, 11):  # what the killed process left is listed, and gone after a week
            later.ahead = timedelta(days=days + ahead)
            maintenance.compact_warehouse(writer)
            assert everything(writer).equals(before)
        assert len(on_disk(writer)) == lying(writer, "hot")[0]["files"]


def test_a_reader_in_another_process_sees_no_error_while_files_move(
    settings: Settings,
    wh: Warehouse,
    reading: Reading,
) -> None:
    total = "SELECT count(*) AS n, sum(gpu_util_pct) AS x, count(DISTINCT ts) AS looks FROM sample"
    answer = wh.query(total).to_pylist()
    later = datetime.now(UTC)
    with reading(settings, total) as seen:
        for ahead in (0, 8, 12):
            maintenance.compact_warehouse(wh)
            tiers.move_to_cold(wh, later + timedelta(days=ahead))
            seen.wait_for_queries()
        maintenance.compact_warehouse(wh)
    assert seen[0]["errors"] == []
    assert seen[0]["answers"] == [answer]
    assert lying(wh, "cold")[0]["rows"] == answer[0]["n"]


def test_status_opens_no_data_file(wh: Warehouse, now: datetime) -> None:
    tiers.move_to_cold(wh, now + timedelta(days=8))
    wh.ingest([look(LOOKS + k) for k in range(3)])
    shutil.rmtree(Path(wh.place.data, "main", "sample"))
    shutil.rmtree(wh.settings.home / "cold")
    rows = {row["tier"]: row for row in maintenance.read_status(wh).to_pylist() if row["table"]}
    assert (rows["hot"]["rows"], rows["hot"]["oldest"]) == (15, START + timedelta(hours=2))
    assert rows["hot"]["newest"] == START + timedelta(hours=2, minutes=20)
    assert rows["hot"]["bytes_per_sample"] > 1
    assert (rows["cold"]["rows"], rows["cold"]["files"]) == (LOOKS * DEVICES - 2, 2)
    assert rows["cold"]["oldest"] == datetime(2026, 11, 19)  # noqa: DTZ001
    assert rows["catalog"]["table"] == f"snapshots, schema {schema.get_current()}"


def test_orphans_go_after_a_week_and_the_living_stay(wh: Warehouse, clock: Clock) -> None:
    before = everything(wh)
    kept = sorted(on_disk(wh))
    orphan = kept[0].with_name("ducklake-01a1fdeb-ca50-74ae-b2fe-b9cd98f4cbdc.parquet")
    shutil.copy(kept[0], orphan)
    for days, listed in ((0, 0), (3, 1), (9, 1)):
        clock.ahead = timedelta(days=days)
        assert maintenance.compact_warehouse(wh).orphans == 0
        assert wh.query("FROM orphan_file").num_rows == listed
    clock.ahead = timedelta(days=11)
    assert maintenance.compact_warehouse(wh).orphans == 1
    assert not orphan.exists()
    assert wh.query("FROM orphan_file").num_rows == 0
    assert everything(wh).equals(before)


def test_strange_files_among_the_lakes_are_never_removed(wh: Warehouse, clock: Clock) -> None:
    strange = Path(wh.place.data, "cold", "sample-20261110-0000-0.parquet")
    strange.parent.mkdir()
    shutil.copy(min(on_disk(wh)), strange)
    clock.ahead = timedelta(days=2)
    with pytest.raises(WarehouseError, match=r"not the lake's, such as .*sample-20261110"):
        maintenance.compact_warehouse(wh)
    assert strange.exists()


def test_a_thawed_days_file_stays_while_a_snapshot_may_read_it(
    wh: Warehouse, clock: Clock, now: datetime
) -> None:
    tiers.move_to_cold(wh, now + timedelta(days=8))
    [path, *_] = map(Path, wh.query("SELECT path FROM cold_file")["path"].to_pylist())
    long_ago = (datetime.now(UTC) - timedelta(days=9)).timestamp()
    os.utime(path, (long_ago, long_ago))
    with wh.transaction() as cursor:
        tiers.restore_days(
            cursor, tiers.read_state(wh, cursor), "sample", START, START + timedelta(hours=1)
        )
    maintenance.compact_warehouse(wh)
    assert path.exists()
    clock.ahead = timedelta(days=3)
    for _ in range(2):
        maintenance.compact_warehouse(wh)
    assert not path.exists()
    assert everything(wh).num_rows == LOOKS * DEVICES - 2


def test_marks_do_not_pile_up_in_the_catalog(
    wh: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "INLINED", 5)
    marked = wh.query("FROM dirty ORDER BY ALL")
    assert "flush dirty committed" in steps(wh)
    assert "flush dirty committed" not in steps(wh)
    assert wh.query("FROM dirty ORDER BY ALL").equals(marked)


def test_beyond_their_bound_replaced_files_go_after_an_hour(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("warehouse.maintenance.MOST_REPLACED_FILES", 2)
    clock = Clock()
    with Warehouse.open(settings, write=True, clock=clock) as warehouse:
        for minute in range(4):
            instant = START + timedelta(minutes=minute)
            columns = {"cluster": ["c"], "device": ["GPU-1"], "ts": [instant]}
            warehouse.ingest([Batch.of("sample", columns)])
        before = warehouse.query("FROM sample ORDER BY ALL")
        maintenance.compact_warehouse(warehouse)
        maintenance.compact_warehouse(warehouse)
        waiting = maintenance.count_files(warehouse).replaced
        assert waiting >= 4  # a query of the last hour may read them
        clock.ahead = timedelta(minutes=61)
        assert maintenance.compact_warehouse(warehouse).removed >= 4
        assert maintenance.count_files(warehouse).replaced < waiting
        assert warehouse.query("FROM sample ORDER BY ALL").equals(before)
        assert all(check.ok for check in verify_warehouse(warehouse))
