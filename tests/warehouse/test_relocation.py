"""A home that was copied or mounted elsewhere opens with all its rows, or says what is missing."""

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from fallow.errors import TemporaryError, WarehouseError
from fallow.settings import Settings
from fallow.tables import Batch
from warehouse.lake import Warehouse
from warehouse.lock import WriterLock
from warehouse.relocation import RelocatedPart, relocate_warehouse
from warehouse.tiers import move_to_cold
from warehouse.verification import verify_warehouse

FIRST = datetime(2026, 11, 10, 6, 0)  # noqa: DTZ001
ALL = "FROM sample ORDER BY ALL"

pytestmark = pytest.mark.slow  # opening a moved home starts a process, which test-fast does not


def fill(settings: Settings, now: datetime) -> pa.Table:
    """Write a home with samples of three archived days and of days in the lake; return all."""
    instants = [FIRST + timedelta(hours=6 * k) for k in range(40)]
    batch = Batch.of(
        "sample",
        {
            "cluster": ["test"] * 40,
            "ts": instants,
            "device": ["GPU-0"] * 40,
            "interval_s": [60.0] * 40,
            "gpu_util_pct": [float(k) for k in range(40)],
        },
    )
    with Warehouse.open(settings, write=True, clock=lambda: now) as warehouse:
        warehouse.ingest([batch])
        assert move_to_cold(warehouse, now).files == 3
        return warehouse.query(ALL)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, pa.Table]:
    """Return a home that is filled once, and its samples."""
    settings = Settings(home=tmp_path_factory.mktemp("original") / "home", cluster="test")
    return settings.home, fill(settings, datetime(2026, 11, 20, 12, tzinfo=UTC))


@pytest.fixture
def rows(original: tuple[Path, pa.Table], settings: Settings) -> pa.Table:
    """Copy that home to this test's; return its samples."""
    home, samples = original
    shutil.copytree(home, settings.home, dirs_exist_ok=True)
    Warehouse.open(settings).close()
    return samples


def move(settings: Settings, home: Path) -> Settings:
    shutil.move(settings.home, home)
    return settings.model_copy(update={"home": home})


@pytest.mark.parametrize("write", [False, True])
def test_a_moved_home_opens_by_itself_with_its_archived_days(
    settings: Settings, rows: pa.Table, tmp_path: Path, write: bool
) -> None:
    moved = move(settings, tmp_path / "elsewhere")
    for _ in range(2):
        with Warehouse.open(moved, write=write) as warehouse:
            assert warehouse.query(ALL).equals(rows)
            assert all(check.ok for check in verify_warehouse(warehouse))


def test_a_copy_neither_reads_nor_changes_the_home_it_was_copied_from(
    settings: Settings, rows: pa.Table, now: datetime, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(settings.home, copy)
    before = {p: p.stat().st_mtime_ns for p in settings.home.rglob("*.parquet")}
    elsewhere = settings.model_copy(update={"home": copy})
    with Warehouse.open(elsewhere, write=True, clock=lambda: now) as warehouse:
        assert warehouse.query(ALL).equals(rows)
        paths = warehouse.query("SELECT path FROM cold_file")["path"].to_pylist()
        assert all(path.startswith(f"{copy}/cold/") for path in paths)
        move_to_cold(warehouse, now + timedelta(days=3))
    assert {p: p.stat().st_mtime_ns for p in settings.home.rglob("*.parquet")} == before
    with Warehouse.open(settings) as warehouse:
        assert warehouse.query(ALL).equals(rows)


@pytest.mark.usefixtures("rows")
def test_a_moved_home_without_some_of_its_files_does_not_open_and_names_one(
    settings: Settings, tmp_path: Path
) -> None:
    moved = move(settings, tmp_path / "elsewhere")
    [*_, last] = sorted((moved.home / "data" / "main" / "sample").rglob("*.parquet"))
    last.unlink()
    with pytest.raises(WarehouseError, match=r"1 of its \d+ data files") as refusal:
        Warehouse.open(moved)
    assert last.name in refusal.value.message
    assert str(settings.home) in refusal.value.message


@pytest.mark.usefixtures("rows")
def test_a_file_cut_by_the_copy_is_missing_too(settings: Settings, tmp_path: Path) -> None:
    moved = move(settings, tmp_path / "elsewhere")
    [*_, last] = sorted((moved.home / "data" / "main" / "sample").rglob("*.parquet"))
    last.write_bytes(last.read_bytes()[:-10])
    with pytest.raises(WarehouseError, match=last.name):
        Warehouse.open(moved)


def test_a_setting_that_names_another_folder_of_data_is_refused(
    settings: Settings, rows: pa.Table, tmp_path: Path
) -> None:
    wrong = settings.warehouse.model_copy(update={"data": str(tmp_path / "wrong")})
    with pytest.raises(WarehouseError, match="data files are not under"):
        Warehouse.open(settings.model_copy(update={"warehouse": wrong}))
    with Warehouse.open(settings) as warehouse:
        assert warehouse.query(ALL).equals(rows)


@pytest.mark.usefixtures("rows")
def test_a_writer_under_the_other_path_is_named(settings: Settings, tmp_path: Path) -> None:
    moved = move(settings, tmp_path / "elsewhere")
    lock = WriterLock(moved.home / "writer.lock")
    lock.acquire()
    try:
        with pytest.raises(TemporaryError, match="is writing"):
            Warehouse.open(moved)
    finally:
        lock.release()


def test_only_the_archive_moved_with_the_home(
    settings: Settings, now: datetime, tmp_path: Path
) -> None:
    data = settings.warehouse.model_copy(update={"data": str(tmp_path / "data")})
    settings = settings.model_copy(update={"warehouse": data})
    rows = fill(settings, now)
    with Warehouse.open(move(settings, tmp_path / "elsewhere")) as warehouse:
        assert warehouse.query(ALL).equals(rows)


def test_days_whose_archive_is_away_leave_the_other_days_readable(
    settings: Settings, rows: pa.Table, tmp_path: Path
) -> None:
    moved = move(settings, tmp_path / "elsewhere")
    (moved.home / "cold").rename(tmp_path / "kept")
    with Warehouse.open(moved) as warehouse:
        failed = [check for check in verify_warehouse(warehouse) if not check.ok]
        assert len(failed) == 3
    (tmp_path / "kept").rename(moved.home / "cold")
    with Warehouse.open(moved) as warehouse:
        assert warehouse.query(ALL).equals(rows)


def test_an_archive_in_another_folder_is_moved_only_by_the_command(
    settings: Settings, rows: pa.Table, tmp_path: Path
) -> None:
    shutil.copytree(settings.home / "cold", tmp_path / "archive")
    wanted = settings.warehouse.model_copy(update={"cold": str(tmp_path / "archive")})
    settings = settings.model_copy(update={"warehouse": wanted})
    with Warehouse.open(settings) as warehouse:
        assert f"{settings.home}/cold/" in str(warehouse.query("SELECT path FROM cold_file"))
    [moved] = relocate_warehouse(settings)
    assert moved == RelocatedPart(
        "archive", f"{settings.home}/cold", f"{tmp_path}/archive", files=3, missing=0
    )
    shutil.rmtree(settings.home / "cold")
    with Warehouse.open(settings) as warehouse:
        assert warehouse.query(ALL).equals(rows)


def test_a_kill_between_the_two_commits_of_a_relocation_is_repaired_by_the_next(
    settings: Settings, rows: pa.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved = move(settings, tmp_path / "elsewhere")

    def end(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("warehouse.relocation._store_data_path", end)
        with pytest.raises(KeyboardInterrupt):
            relocate_warehouse(moved)
    with Warehouse.open(moved) as warehouse:
        assert warehouse.query(ALL).equals(rows)
        assert warehouse.query("SELECT count(*) AS n FROM cold_file")["n"].to_pylist() == [3]


@pytest.mark.usefixtures("rows")
def test_a_home_that_did_not_move_has_nothing_to_relocate(settings: Settings) -> None:
    assert relocate_warehouse(settings) == []


def test_another_spelling_of_a_home_is_no_move_while_its_service_runs(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    below = tmp_path / "below"
    below.mkdir()
    (tmp_path / "link").symlink_to(below)
    with Warehouse.open(settings, write=True):
        monkeypatch.chdir(below)
        spelling = Path("..", settings.home.relative_to(tmp_path))
        for home in (spelling, Path.cwd() / spelling):
            Warehouse.open(settings.model_copy(update={"home": home})).close()
        beside = Settings(home=below / "home")
        with Warehouse.open(beside, write=True):
            home = tmp_path / "link" / "home" / ".." / "home"
            Warehouse.open(Settings(home=home)).close()
