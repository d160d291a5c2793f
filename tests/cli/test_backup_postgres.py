"""A backup of a home whose catalog is in PostgreSQL, restored into another, empty database."""

import json
import shutil
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from actions.journal import Journal, event_types
from fallow.errors import UsageError, WarehouseError
from fallow.settings import Settings, load
from runtime.operations.acting.live_actor import freeze_file
from runtime.service.backup.restoring import restore_backup
from runtime.service.backup.writing import write_backup
from tests.cli.conftest import Fallow
from tests.cli.test_backup import ALL, NOW, flip_a_bit, scrape
from tests.servers.postgres import Server, serving
from warehouse import maintenance
from warehouse.catalog_copies import CATALOG_COPY, hold_snapshot, restore_catalog
from warehouse.lake import Warehouse
from warehouse.tiers import move_to_cold
from warehouse.verification import verify_warehouse

KEYS = (
    "SELECT * FROM postgres_query('__ducklake_metadata_lake',"
    " 'SELECT count(*) FROM pg_constraint WHERE contype = ''p''"
    " AND connamespace = ''public''::regnamespace')"
)


@pytest.fixture(scope="module")
def postgres() -> Iterator[Server]:
    with serving() as server:
        yield server


def read_settings(folder: Path, catalog: str) -> Settings:
    file = folder / "fallow.yaml"
    file.write_text(json.dumps({"cluster": "test", "warehouse": {"catalog": catalog}}))
    return load(file=file, environ={}, flags={"home": folder / "home"}).settings


@pytest.fixture(scope="module")
def site(postgres: Server, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Return the settings of a home with live and archived days and a journal."""
    settings = read_settings(tmp_path_factory.mktemp("site"), postgres.catalog("site"))
    with Warehouse.open(settings, write=True, clock=lambda: NOW) as warehouse:
        for day in (10, 9, 1, 0):
            warehouse.ingest([scrape(NOW - timedelta(days=day))])
        assert move_to_cold(warehouse, NOW).files == 2
    with Journal.open(settings.home / "journal.sqlite", lambda: NOW) as journal:
        journal.append(event_types.NOTIFIED, "f1", {"policy": "idle", "verb": "stop"})
    return settings


@pytest.fixture(scope="module")
def backup(site: Settings, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a backup; the rows that it has lie beside it: other tests add some afterwards."""
    folder = tmp_path_factory.mktemp("backups") / "monday"
    with Warehouse.open(site) as warehouse:
        pq.write_table(warehouse.query(ALL), folder.parent / "rows.parquet")
    write_backup(site, str(folder), lambda: NOW)
    return folder


def test_it_is_restored_into_an_empty_database_and_written_on(
    fallow: Fallow,
    site: Settings,
    backup: Path,
    postgres: Server,
    tmp_path: Path,
) -> None:
    with Warehouse.open(site) as warehouse:
        before = warehouse.query(ALL)
    settings = read_settings(tmp_path, postgres.catalog("restored"))
    ran = fallow("restore", backup, "--home", settings.home)
    assert ran.code == 0, ran.err
    assert freeze_file(settings).exists()
    with Warehouse.open(settings, write=True, clock=lambda: NOW) as warehouse:
        assert warehouse.query(ALL).equals(pq.read_table(backup.parent / "rows.parquet"))
        paths = warehouse.query("SELECT path FROM cold_file")["path"].to_pylist()
        assert all(path.startswith(str(settings.home)) for path in paths)
        assert warehouse.ingest([scrape(NOW), scrape(NOW - timedelta(hours=1))]).added == 4
        maintenance.compact_warehouse(warehouse)
        assert [check for check in verify_warehouse(warehouse) if not check.ok] == []
        with warehouse.snapshot() as cursor:
            assert cursor.execute(KEYS).fetchall() == [(5,)], "primary keys are restored"
    with Warehouse.open(site) as warehouse:
        assert warehouse.query(ALL).equals(before)


def test_the_copy_is_of_the_moment_at_which_it_began(
    site: Settings, postgres: Server, tmp_path: Path
) -> None:
    with Warehouse.open(site, write=True, clock=lambda: NOW) as warehouse:
        before = warehouse.query("SELECT count(*) AS n FROM sample").to_pylist()
        with hold_snapshot(site) as (begin, copy):
            begin()
            warehouse.ingest([scrape(NOW - timedelta(hours=2))])
            copy(tmp_path / CATALOG_COPY)
    other = site.warehouse.model_copy(update={"catalog": postgres.catalog("moment")})
    copied = site.model_copy(update={"warehouse": other})
    restore_catalog(copied, tmp_path / CATALOG_COPY)
    with Warehouse.open(copied) as warehouse:
        assert warehouse.query("SELECT count(*) AS n FROM sample").to_pylist() == before
    with pytest.raises(UsageError, match="has a catalog already"):
        restore_catalog(copied, tmp_path / CATALOG_COPY)


def test_places_that_do_not_fit_are_refused_before_anything_is_written(
    fallow: Fallow, site: Settings, backup: Path, tmp_path: Path
) -> None:
    ran = fallow("restore", backup, "--home", tmp_path / "home")
    assert (ran.code, "catalog was in PostgreSQL" in ran.err) == (2, True)
    read_settings(tmp_path, site.warehouse.catalog)
    ran = fallow("restore", backup, "--home", tmp_path / "home")
    assert (ran.code, "has a catalog already" in ran.err) == (2, True)
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize("part", [CATALOG_COPY, "data"])
def test_one_changed_byte_of_it_is_found_and_nothing_is_in_the_database(
    backup: Path, postgres: Server, tmp_path: Path, part: str
) -> None:
    copy = shutil.copytree(backup, tmp_path / "copy")
    place = copy / part
    [path, *_] = [place] if place.is_file() else [p for p in place.rglob("*") if p.is_file()]
    flip_a_bit(path)
    settings = read_settings(tmp_path, postgres.catalog(f"damaged{part[:4]}"))
    with pytest.raises(WarehouseError, match="is damaged"):
        restore_backup(settings, str(copy), lambda: NOW)
    with pytest.raises(WarehouseError, match="no warehouse"):
        Warehouse.open(settings)


def test_a_server_that_is_away_gives_no_backup_and_says_so(
    fallow: Fallow, postgres: Server, site: Settings, tmp_path: Path
) -> None:
    read_settings(tmp_path, site.warehouse.catalog)
    postgres.stop()
    try:
        ran = fallow("backup", tmp_path / "backup", "--home", site.home)
    finally:
        postgres.start()
    assert ran.code == 75
    assert "the catalog cannot be reached" in ran.err
    assert not (tmp_path / "backup" / "manifest.json").exists()
