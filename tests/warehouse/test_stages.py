"""Stages as slices store what one process stores, all or nothing, whatever dies meanwhile."""

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import polars as pl
import pytest

from fallow.errors import FallowError, TemporaryError, WarehouseError
from fallow.settings import Settings, load
from fallow.tables import Batch
from fallow.window import Window
from tests.copies import copied
from tests.demo_homes import copy_demo
from tests.servers.postgres import Server
from tests.warehouse.stage_tasks import find_window
from warehouse import dirty, ingest, maintenance, signals
from warehouse.lake import Warehouse
from warehouse.leases import claim_lease
from warehouse.ledger import write_ledger
from warehouse.rollup import list_due, roll_up
from warehouse.runners.local import LocalRunner
from warehouse.runners.slices import StageError
from warehouse.stages import files, ledger_stage, rollup_stage
from warehouse.stages.files import StageFile
from warehouse.stages.lease import PREFIX, hold_stage, is_stage_running
from warehouse.stages.ledger_stage import write_ledger_stage
from warehouse.stages.rollup_stage import plan_slices, roll_up_stage

S = TypeVar("S")
T = TypeVar("T")
START = datetime(2026, 11, 19, 22)  # noqa: DTZ001  (tables hold naive UTC)
ROLLED = ("rollup_5m", "rollup_1h", "device")


class InProcess:
    """A runner without processes; `between` is called after the slices ran."""

    concurrency = 1

    def __init__(self, between: Callable[[], object] = lambda: None) -> None:
        self.between = between
        self.slices: list[Any] = []

    def map(self, task: Callable[[S], T], slices: Sequence[S]) -> list[T]:
        self.slices += slices
        results = [task(part) for part in slices]
        self.between()
        return results

    def close(self) -> None:
        pass

    def __call__(self, _: Settings) -> "InProcess":
        return self


@pytest.fixture(autouse=True)
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Divide the devices of an hour, too: an hour here has up to 2,400 samples."""
    monkeypatch.setattr(rollup_stage, "SLICE_SAMPLES", 1_300)


def build_samples(cluster: str, minutes: range, devices: int = 40) -> Batch:
    rows = [(m, d) for m in minutes for d in range(devices)]
    return Batch.of(
        "sample",
        {
            "cluster": [cluster] * len(rows),
            "ts": [START + timedelta(minutes=m, seconds=d % 7) for m, d in rows],
            "device": [f"GPU-{d}" for _, d in rows],
            "node": [f"node-{d // 8}" for _, d in rows],
            "namespace": [f"team-{d % 3}" if m < 100 else None for m, d in rows],
            "pod": [f"pod-{d}" if m < 100 else None for m, d in rows],
            "model": ["NVIDIA H100 80GB HBM3"] * len(rows),
            "interval_s": [60.0] * len(rows),
            "gpu_util_pct": [float((m * 7 + d * 13) % 101) for m, d in rows],
            "power_w": [100.0 + (m + d) % 17 for m, d in rows],
        },
    )


@pytest.fixture(scope="module")
def sampled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a home with samples of two clusters across a midnight; nothing is rolled up."""
    home = tmp_path_factory.mktemp("sampled") / "home"
    with Warehouse.open(open_settings(home), write=True, clock=get_now) as wh:
        wh.ingest([build_samples("one", range(150)), build_samples("two", range(30))])
    return home


def get_now() -> datetime:
    return datetime(2026, 11, 20, 12, tzinfo=UTC)


def open_settings(home: Path, **flags: Any) -> Settings:
    return load(environ={}, flags={"home": home, "cluster": "one", **flags}).settings


@pytest.fixture
def wh(sampled: Path, tmp_path: Path) -> Iterator[Warehouse]:
    with Warehouse.open(
        open_settings(copied(sampled, tmp_path / "home")), write=True, clock=get_now
    ) as warehouse:
        yield warehouse


def read_rolled(wh: Warehouse) -> dict[str, pl.DataFrame]:
    return {t: pl.DataFrame(wh.query(f"FROM {t} ORDER BY ALL")) for t in ROLLED}


def read_marks(wh: Warehouse) -> tuple[int, list[datetime]]:
    hours = wh.query("SELECT DISTINCT bucket FROM unposted ORDER BY ALL")["bucket"].to_pylist()
    return wh.query("FROM dirty").num_rows, hours


def assert_equal(one: dict[str, pl.DataFrame], other: dict[str, pl.DataFrame]) -> None:
    for table, rows in one.items():
        assert rows.height
        assert (rows.columns, rows.height) == (other[table].columns, other[table].height), table
        for column in rows:
            differing = column.ne_missing(other[table][column.name])
            pairs = zip(
                column.filter(differing),
                other[table][column.name].filter(differing),
                strict=True,
            )
            for mine, theirs in pairs:
                # A sum's last digit depends on the order of its parts, which threads change too.
                assert isinstance(mine, float), (table, column.name)
                assert mine == pytest.approx(theirs, rel=1e-9), (table, column.name)


@pytest.fixture(scope="module")
def whole(
    sampled: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[dict[str, pl.DataFrame], tuple[int, list[datetime]]]:
    """Return what one process rolls up, and the marks that are left."""
    home = copied(sampled, tmp_path_factory.mktemp("whole") / "home")
    with Warehouse.open(open_settings(home), write=True, clock=get_now) as warehouse:
        roll_up(warehouse)
        return read_rolled(warehouse), read_marks(warehouse)


def test_slices_of_hours_and_devices_store_what_one_process_stores(
    wh: Warehouse, whole: tuple[dict[str, pl.DataFrame], object]
) -> None:
    runner = InProcess()
    assert roll_up_stage(wh, runner) > 0
    assert {s.parts for s in runner.slices} == {1, 2}
    assert {s.cluster for s in runner.slices} == {"one", "two"}
    assert_equal(whole[0], read_rolled(wh))
    assert read_marks(wh) == whole[1]
    assert roll_up_stage(wh, runner) == 0, "nothing is left to do"


def test_a_slice_that_fails_costs_its_cluster_its_hour(
    wh: Warehouse, whole: tuple[dict[str, pl.DataFrame], object]
) -> None:
    with wh.transaction() as cursor:  # no sample of the hour has an interval that can be read
        of_hour = f"WHERE \"cluster\" = 'one' AND ts < '{START + timedelta(hours=1)}'"
        cursor.execute(f"DELETE FROM sample {of_hour} AND ts >= '{START + timedelta(minutes=50)}'")
        cursor.execute(f"UPDATE sample SET interval_s = 'nan' {of_hour}")
    runner = LocalRunner(2)
    try:
        assert roll_up_stage(wh, lambda _: runner) > 0
    finally:
        runner.close()
    kept = pl.col("cluster").eq("two") | pl.col("bucket").ge(START + timedelta(hours=2))
    rolled = {t: rows.filter(kept) for t, rows in read_rolled(wh).items() if t != "device"}
    assert_equal({t: whole[0][t].filter(kept) for t in rolled}, rolled)
    dirty_hours = wh.query("SELECT DISTINCT cluster, date_trunc('hour', bucket) AS at FROM dirty")
    assert dirty_hours.to_pylist() == [{"cluster": "one", "at": START}]
    assert wh.query("SELECT kind, namespace, name FROM rejection").to_pylist() == [
        {"kind": "rollup_5m", "namespace": "one", "name": f"{START:%Y-%m-%d %H:%M}"}
    ]


def roll_up_to_files(wh: Warehouse) -> None:
    """Roll up in this process as with many rows, which it writes to files itself."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "FILE_ROWS", 1)
        roll_up(wh)


def test_a_roll_up_that_fails_while_files_are_written_leaves_none(
    wh: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    marks, places = read_marks(wh), Path(wh.place.data)

    def fail(*_: object) -> None:
        raise OSError("no space left")

    before = set(places.rglob("*.parquet"))
    monkeypatch.setattr(dirty, "mark_hours", fail)
    with pytest.raises(WarehouseError, match="no space left"):
        roll_up_to_files(wh)
    assert before
    assert set(places.rglob("*.parquet")) == before
    assert read_marks(wh) == marks


def roll_up_in_slices(wh: Warehouse) -> None:
    roll_up_stage(wh, InProcess())


@pytest.mark.parametrize("roll", [roll_up_in_slices, roll_up_to_files])
def test_registered_files_are_compacted_by_day_and_replaced_as_others(
    wh: Warehouse, whole: tuple[dict[str, pl.DataFrame], object], roll: Callable[[Warehouse], None]
) -> None:
    roll(wh)
    assert_equal(whole[0], read_rolled(wh))
    by_day = "SELECT count(*) AS n FROM rollup_5m WHERE bucket >= $a AND bucket < $b"
    midnight, length = datetime(2026, 11, 20), timedelta(days=1)  # noqa: DTZ001
    days = [
        wh.query(by_day, {"a": d, "b": d + length})["n"][0].as_py()
        for d in (midnight - length, midnight)
    ]
    assert sum(days) == whole[0]["rollup_5m"].height
    assert min(days) > 0
    maintenance.compact_warehouse(wh)
    assert_equal(whole[0], read_rolled(wh))
    with wh.snapshot() as cursor:
        paths = cursor.execute(
            "SELECT f.path FROM __ducklake_metadata_lake.ducklake_data_file AS f"
            " JOIN __ducklake_metadata_lake.ducklake_table AS t USING (table_id)"
            " WHERE table_name = 'rollup_5m' AND f.end_snapshot IS NULL"
        ).fetchall()
    assert sorted(path.rpartition("/")[0] for (path,) in paths) == [
        "year=2026/month=11/day=19",
        "year=2026/month=11/day=20",
    ]
    day = Window(datetime(2026, 11, 20, tzinfo=UTC), datetime(2026, 11, 21, tzinfo=UTC))
    roll_up(wh, day)  # replaces rows of registered files
    assert_equal(whole[0], read_rolled(wh))


def list_data_files(wh: Warehouse) -> set[Path]:
    return set(Path(wh.place.data).rglob("*.parquet"))


def test_files_of_a_roll_up_that_fails_are_removed(
    wh: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = list_data_files(wh)
    written: list[StageFile] = []

    def refuse(_: object, new: Sequence[StageFile]) -> int:
        written.extend(new)
        raise TemporaryError("the catalog is not reachable")

    monkeypatch.setattr(files, "add_files", refuse)
    with pytest.raises(TemporaryError):
        roll_up_to_files(wh)
    assert {file.table for file in written} == {"rollup_5m"}
    assert list_data_files(wh) == before
    assert read_marks(wh)[0] > 0, "the buckets are still due"


def test_the_file_of_a_scrape_that_is_not_stored_is_removed(
    wh: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, scrape = list_data_files(wh), build_samples("new", range(1), devices=4)
    monkeypatch.setattr(ingest, "SCRAPE_ROWS", 4)
    with monkeypatch.context() as patch:
        patch.setattr(ingest, "mark_buckets", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            wh.ingest([scrape])
    assert list_data_files(wh) == before
    assert wh.ingest([scrape]).added == 4
    assert len(list_data_files(wh) - before) == 1
    assert wh.ingest([scrape]).duplicates == 4


def test_a_long_delivery_is_stored_as_the_engine_would_store_it(
    wh: Warehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # More than a row group, in slices of time that are not sorted by device, over a midnight.
    slices = [range(first, first + 50) for first in range(-1440, -1290, 50)]
    deliveries = [build_samples("long", minutes, devices=900) for minutes in slices]
    select = "FROM sample WHERE cluster = 'long' ORDER BY ALL"
    before = list_data_files(wh)
    with Warehouse.open(
        open_settings(copied(wh.settings.home, tmp_path / "engine")), write=True, clock=get_now
    ) as other:
        with monkeypatch.context() as patch:
            patch.setattr(ingest, "SCRAPE_ROWS", 10**9)
            assert other.ingest(deliveries).added == 135_000
        expected = other.query(select)
    with monkeypatch.context() as patch:
        patch.setattr(files, "add_files", lambda *_: 1 / 0)  # it is written here
        with pytest.raises(ZeroDivisionError):
            wh.ingest(deliveries)
    assert list_data_files(wh) == before
    assert wh.ingest(deliveries).added == 135_000
    assert len(list_data_files(wh) - before) == 2, "one file a day"
    assert wh.query(select).equals(expected)
    maintenance.compact_warehouse(wh)
    assert wh.query(select).equals(expected)
    assert wh.ingest(deliveries).duplicates == 135_000


def test_samples_that_come_after_the_snapshot_are_not_lost(wh: Warehouse, tmp_path: Path) -> None:
    late = build_samples("one", range(30, 40), devices=50)
    runner = InProcess(between=lambda: wh.ingest([late]))
    roll_up_stage(wh, runner)
    again = copied(wh.settings.home, tmp_path / "again")
    rolled = read_rolled(wh)
    assert read_marks(wh)[0] == 0, "the stage's own end rolled the late ones up"
    assert rolled["device"].height == 90
    with Warehouse.open(open_settings(again), write=True, clock=get_now) as other:
        roll_up(other, Window(*(START.replace(tzinfo=UTC) + timedelta(hours=h) for h in (0, 5))))
        assert_equal(read_rolled(other), rolled)


def test_a_late_sample_keeps_the_mark_of_its_bucket_and_of_no_other(wh: Warehouse) -> None:
    kept: list[datetime] = []

    def note(warehouse: Warehouse, **_: object) -> int:
        sql = "SELECT DISTINCT bucket FROM dirty ORDER BY ALL"
        kept.extend(warehouse.query(sql)["bucket"].to_pylist())
        return 0

    runner = InProcess(between=lambda: wh.ingest([build_samples("one", range(31, 32), 50)]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rollup_stage, "roll_up", note)
        roll_up_stage(wh, runner)
    assert kept == [START + timedelta(minutes=30), START + timedelta(minutes=35)]


def test_maintenance_between_a_workers_return_and_the_commit_removes_nothing(
    wh: Warehouse, whole: tuple[dict[str, pl.DataFrame], object]
) -> None:
    removed: list[int] = []

    def compact() -> None:
        assert is_stage_running(wh)
        wh.clock = lambda: get_now() + timedelta(days=30)
        removed.append(maintenance.compact_warehouse(wh).orphans)
        wh.clock = get_now

    roll_up_stage(wh, InProcess(between=compact))
    assert removed == [0]
    assert_equal(whole[0], read_rolled(wh))
    assert not is_stage_running(wh)


@pytest.mark.parametrize(
    "damage",
    # The same check; "shorter" covers it in `make test`.
    ["shorter", pytest.param("gone", marks=pytest.mark.long)],
)
def test_a_damaged_file_fails_the_stage_whole(wh: Warehouse, damage: str) -> None:
    def harm() -> None:
        file = max(Path(wh.place.data).rglob("rollup_1h/**/*.parquet"))
        if damage == "gone":
            file.unlink()
        else:
            file.write_bytes(file.read_bytes()[:-10])

    before = read_marks(wh)
    with pytest.raises(StageError, match=r"nothing is stored"):
        roll_up_stage(wh, InProcess(between=harm))
    assert wh.query("FROM rollup_5m").num_rows == 0
    assert read_marks(wh) == before
    assert not list(Path(wh.place.data).rglob("rollup_5m/**/*.parquet")), "its files are removed"


def test_two_drivers_at_once_are_one(wh: Warehouse) -> None:
    with hold_stage(wh, "rollup"), pytest.raises(TemporaryError, match="runs in this process"):
        roll_up_stage(wh, InProcess())
    assert roll_up_stage(wh, InProcess()) > 0


def test_two_processes_roll_up_what_one_does(
    wh: Warehouse, whole: tuple[dict[str, pl.DataFrame], object]
) -> None:
    runner = LocalRunner(2)
    try:
        roll_up_stage(wh, lambda _: runner)
    finally:
        runner.close()
    assert_equal(whole[0], read_rolled(wh))


def test_small_work_is_not_sliced(wh: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollup_stage, "SLICE_SAMPLES", 10**9)
    runner = InProcess()
    wh.ingest([build_samples("one", range(10), 50)])
    slices = plan_slices(wh, list_due(wh)[:1])
    assert [s.parts for s in slices] == [1] * len(slices)
    roll_up(wh)
    assert roll_up_stage(wh, runner) == 0
    assert runner.slices == []


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("demo")
    return copy_demo(tmp_path_factory, folder / "home", days=1, gpus=24, seed=3)


LEDGER = ("signal", "ledger", "ledger_1h", "ledger_1d")


def read_ledger(wh: Warehouse) -> dict[str, pl.DataFrame]:
    return {t: pl.DataFrame(wh.query(f"FROM {t} ORDER BY ALL")) for t in LEDGER}


@pytest.fixture
def accounted(demo: Path, tmp_path: Path) -> Iterator[Warehouse]:
    with Warehouse.open(open_settings(copied(demo, tmp_path / "home")), write=True) as warehouse:
        yield warehouse


def test_slices_of_hours_write_the_ledger_of_one_process(
    accounted: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    window = find_window(accounted)
    write_ledger(accounted, window)
    before = read_ledger(accounted)
    monkeypatch.setattr(ledger_stage, "compute_stride", lambda _: timedelta(hours=7))
    monkeypatch.setattr(signals, "DEVICE_BUCKETS", 2_000)
    runner = InProcess()
    assert write_ledger_stage(accounted, window, runner) == before["ledger"].height
    assert len(runner.slices) > 4
    assert max(part.parts for part in runner.slices) > 1, "devices are divided too"
    assert_equal(before, read_ledger(accounted))


def test_a_pod_that_changes_while_slices_run_is_in_the_ledger(
    accounted: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    window = find_window(accounted)
    write_ledger(accounted, window)
    before = read_ledger(accounted)
    teams = set(before["ledger"]["team"])
    monkeypatch.setattr(ledger_stage, "compute_stride", lambda _: timedelta(hours=7))

    def rename() -> None:
        with accounted.transaction() as cursor:
            cursor.execute("UPDATE pod SET team = 'renamed' WHERE team IS NOT NULL")
            cursor.execute("UPDATE allocation SET team = 'renamed' WHERE team IS NOT NULL")

    write_ledger_stage(accounted, window, InProcess(between=rename))
    after = read_ledger(accounted)
    assert "renamed" not in teams
    assert "renamed" in set(after["ledger"]["team"])
    write_ledger(accounted, window)
    assert_equal(read_ledger(accounted), after)


def test_a_stale_driver_cannot_commit_through_postgresql(
    database_server: Server, tmp_path: Path
) -> None:
    flags = {"warehouse.catalog": database_server.catalog("stages")}
    with Warehouse.open(open_settings(tmp_path / "home", **flags), write=True, clock=get_now) as wh:
        wh.ingest([build_samples("one", range(240))])

        def take_over() -> None:
            assert is_stage_running(wh)
            with wh.catalog_cursor() as cursor:
                cursor.execute(
                    "CALL postgres_execute('__ducklake_metadata_lake',"
                    " 'UPDATE fallow_lease SET expires_at = clock_timestamp()')"
                )
            claim_lease(wh, f"{PREFIX}rollup", "other", "{}", seconds=60)

        with pytest.raises(FallowError, match="another process runs the stage/rollup"):
            roll_up_stage(wh, InProcess(between=take_over))
        assert wh.query("FROM rollup_5m").num_rows == 0
        with pytest.raises(TemporaryError, match="another process runs the stage/rollup"):
            roll_up_stage(wh, InProcess())
        with wh.catalog_cursor() as cursor:
            cursor.execute(
                "CALL postgres_execute('__ducklake_metadata_lake', 'DELETE FROM fallow_lease')"
            )
        assert roll_up_stage(wh, InProcess()) > 0
        assert wh.query("FROM rollup_5m").num_rows > 0
