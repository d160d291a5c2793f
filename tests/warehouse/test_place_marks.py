"""Files of a warehouse are safe from another catalog: a new one, a second home's, an old one."""

import os
import shutil
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest

from fallow.errors import ForeignWarehouseError
from fallow.settings import Settings, load
from fallow.tables import Batch
from tests.servers import s3
from tests.servers.postgres import Server, serving
from warehouse import maintenance, tiers
from warehouse.catalog import CATALOG_FILE
from warehouse.cold_storage import create_s3_client, open_place
from warehouse.lake import Warehouse
from warehouse.orphans import count_orphans
from warehouse.place_marks import MARK, PlaceMarks, read_mark
from warehouse.verification import verify_warehouse

DAY = timedelta(days=1)
LATER = datetime.now(UTC) + 20 * DAY
"""A time at which everything that a test writes is old enough to be removed."""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving() as running:
        yield running


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with s3.serving() as url:
        yield url


Site = Callable[[str], Settings]


@pytest.fixture(params=["folder", "s3", "postgres"])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Site:
    """Return what makes a home of this name, all of them with the same places of files."""
    name = f"site{abs(hash(tmp_path)) % 10**9}"
    flags: dict[str, object] = {"cluster": "test"}
    flags |= {f"warehouse.{part}": str(tmp_path / part) for part in ("data", "cold")}
    if request.param == "s3":
        endpoint = request.getfixturevalue("endpoint")
        s3.make_bucket(endpoint, name)
        flags |= {f"warehouse.{part}": f"s3://{name}/{part}" for part in ("data", "cold")}
        flags |= {"warehouse.s3.endpoint": endpoint, "warehouse.s3.region": "us-east-1"}
        flags |= {f"warehouse.s3.{key}": "test" for key in ("access_key_id", "secret_access_key")}

    def make(home: str) -> Settings:
        if request.param == "postgres":
            server: Server = request.getfixturevalue("server")
            flags["warehouse.catalog"] = server.catalog(f"{name}{home}")
        return load(environ={}, flags={**flags, "home": tmp_path / home}).settings

    return make


def fill(settings: Settings, days: int = 4) -> None:
    """Write samples of some days, the oldest of which is archived."""
    now = datetime.now(UTC)
    with Warehouse.open(settings, write=True) as warehouse:
        for day in range(days):
            instant = (now - timedelta(days=10 - day)).replace(tzinfo=None)
            rows = {"cluster": ["c"], "device": ["GPU-1"], "ts": [instant], "interval_s": [60.0]}
            warehouse.ingest([Batch.of("sample", rows)])
        tiers.move_to_cold(warehouse, now - timedelta(days=2))


def list_files(settings: Settings) -> list[str]:
    """Return every Parquet file of the places, old enough to be removed where it is local."""
    places = settings.warehouse.data, settings.warehouse.cold
    if "://" not in places[0]:
        paths = sorted(path for place in places for path in Path(place).rglob("*.parquet"))
        for path in paths:
            os.utime(path, (0, 0))
        return [str(path) for path in paths]
    client = create_s3_client(settings.warehouse.s3)
    bucket = places[0].split("/")[2]
    listed = client.list_objects_v2(Bucket=bucket).get("Contents", [])
    return sorted(key["Key"] for key in listed if key["Key"].endswith(".parquet"))


def drop_marks(settings: Settings) -> None:
    """Take the marks away, as in a home of before."""
    for place in (settings.warehouse.data, settings.warehouse.cold):
        open_place(place, settings.warehouse.s3, "a place").delete(f"{place}/{MARK}")


def maintain(settings: Settings) -> None:
    with Warehouse.open(settings, write=True, clock=lambda: LATER) as warehouse:
        tiers.move_to_cold(warehouse, LATER)
        maintenance.compact_warehouse(warehouse)


def test_a_new_catalog_beside_files_of_another_removes_none_and_is_refused(site: Site) -> None:
    first, second = site("first"), site("second")
    fill(first)
    before = list_files(first)
    assert len(before) > 5
    with pytest.raises(ForeignWarehouseError, match="belong to the warehouse"):
        maintain(second)
    assert list_files(first) == before
    with Warehouse.open(first) as warehouse:
        assert warehouse.query("FROM sample").num_rows == 4
    assert not (second.home / CATALOG_FILE).exists()
    maintain(first)


def test_two_homes_of_before_share_no_place(site: Site) -> None:
    first, second = site("first"), site("second")
    fill(first)
    drop_marks(first)
    before = list_files(first)
    with pytest.raises(ForeignWarehouseError, match="of their own catalog"):
        maintain(second)
    with Warehouse.open(first, write=True):
        pass
    with pytest.raises(ForeignWarehouseError, match="belong to the warehouse"):
        maintain(second)
    assert list_files(first) == before


def test_a_catalog_behind_its_mark_removes_nothing_until_it_is_adopted(
    settings: Settings, tmp_path: Path
) -> None:
    fill(settings, days=2)
    copy = tmp_path / "copy.sqlite"
    shutil.copy(settings.home / CATALOG_FILE, copy)
    fill(settings)
    for path in settings.home.glob(f"{CATALOG_FILE}*"):
        path.unlink()
    copy.rename(settings.home / CATALOG_FILE)
    files = sorted(settings.home.rglob("*.parquet"))
    for _ in range(2):  # with commits of its own, too, until its snapshots have higher numbers
        fill(settings, days=8)
        maintain(settings)
        with Warehouse.open(settings) as warehouse:
            assert warehouse.marks.is_behind()
            [check] = [c for c in verify_warehouse(warehouse) if c.subject.startswith("files w")]
            assert not check.ok
    assert all(path.exists() for path in files)
    with Warehouse.open(settings, write=True, adopted=["data"]) as warehouse:
        assert not warehouse.marks.is_behind()
    maintain(settings)
    with Warehouse.open(settings) as warehouse:
        assert count_orphans(warehouse).listed > 0


def test_a_commit_stamps_the_mark_at_most_once_a_minute(settings: Settings) -> None:
    seconds = [0.0]
    with Warehouse.open(settings, write=True) as warehouse:
        marks = warehouse.marks = PlaceMarks(
            settings, warehouse.place, warehouse._cursor, lambda: seconds[0]
        )
        stamped = []
        for second in (1.0, 59.0, 61.0, 62.0):
            seconds[0] = second
            with warehouse.transaction() as cursor:
                cursor.execute("INSERT INTO dirty BY NAME SELECT 'c' AS cluster")
            mark = read_mark(marks.stores["data"])
            stamped.append(mark is not None and mark == marks._read_newest())
        assert stamped == [False, False, True, False]
    assert not list(settings.home.glob("data/.fallow*"))


def test_many_orphans_wait_for_a_person(settings: Settings) -> None:
    fill(settings)
    [path, *_] = (settings.home / "data" / "main" / "sample").rglob("*.parquet")
    strays = [
        path.with_name(f"ducklake-01a1fdeb-ca50-74ae-b2fe-{number:012x}.parquet")
        for number in range(21)
    ]
    for stray in strays:
        shutil.copy(path, stray)
    now = datetime.now(UTC)
    for days, removed, waiting in ((3, 0, 0), (11, 0, 21)):
        with Warehouse.open(
            settings, write=True, clock=partial(now.__add__, days * DAY)
        ) as warehouse:
            assert maintenance.compact_warehouse(warehouse).orphans == removed
            assert count_orphans(warehouse).for_person == waiting
    strays[0].unlink()
    with Warehouse.open(settings, write=True, clock=lambda: now + 11 * DAY) as warehouse:
        assert maintenance.compact_warehouse(warehouse).orphans == 20
    assert not any(stray.exists() for stray in strays)
