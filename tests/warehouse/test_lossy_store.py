"""An object store that acknowledges and keeps nothing, or keeps and loses its answer."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from fallow.errors import FallowError, TemporaryError
from fallow.settings import Settings, load
from fallow.tables import Batch
from tests.servers import lossy_store, s3
from tests.servers.lossy_store import LossyStore
from warehouse.cold_storage import ColdBucket
from warehouse.lake import Warehouse
from warehouse.tiers import move_to_cold
from warehouse.verification import verify_warehouse

pytest.importorskip("moto.server")

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
OLD = NOW - timedelta(days=9)
COUNT = "SELECT sum(power_w) / 100 AS n FROM sample"  # a count alone reads no file


@pytest.fixture(scope="module")
def store() -> Iterator[LossyStore]:
    with s3.serving() as url, lossy_store.serving(url) as proxy:
        s3.make_bucket(url, "lossy")
        yield proxy


def place(store: LossyStore, folder: Path, **places: str) -> Settings:
    """Return settings whose named places are in a prefix of the test's own."""
    store.mode = "honest"
    store.objects.clear()
    root = f"s3://lossy/{folder.name}"
    flags = {
        "home": folder / "home",
        "cluster": "test",
        "warehouse.s3.endpoint": store.url,
        "warehouse.s3.region": "us-east-1",
        "warehouse.s3.access_key_id": "test",
        "warehouse.s3.secret_access_key": "test",
        **{f"warehouse.{name}": f"{root}/{part}" for name, part in places.items()},
    }
    return load(environ={}, flags=flags).settings


def scrape(at: datetime, count: int = 4) -> Batch:
    """Return one scrape of so many devices."""
    return Batch.of(
        "sample",
        {
            "cluster": ["test"] * count,
            "ts": [at.replace(tzinfo=None)] * count,
            "device": [f"GPU-{k}" for k in range(count)],
            "interval_s": [60.0] * count,
            "power_w": [100.0] * count,
        },
    )


def count_rows(warehouse: Warehouse) -> int:
    [count] = warehouse.query(COUNT)["n"].to_pylist()
    return int(count)


def test_a_day_that_the_archive_did_not_keep_stays_in_the_lake(
    store: LossyStore, tmp_path: Path
) -> None:
    settings = place(store, tmp_path, cold="cold")
    with Warehouse.open(settings, write=True, clock=lambda: NOW) as warehouse:
        warehouse.ingest([scrape(OLD), scrape(NOW)])
        store.mode = "forgets"
        with pytest.raises(TemporaryError, match=r"acknowledged .*\.parquet"):
            move_to_cold(warehouse, NOW)
        assert store.objects
        assert count_rows(warehouse) == 8
        store.mode = "honest"
        assert move_to_cold(warehouse, NOW).files == 1
        assert count_rows(warehouse) == 8
        assert all(check.ok for check in verify_warehouse(warehouse))


def test_data_that_the_store_did_not_keep_are_not_acknowledged(
    store: LossyStore, tmp_path: Path
) -> None:
    settings = place(store, tmp_path, data="data", cold="cold")
    with Warehouse.open(settings, write=True, clock=lambda: NOW) as warehouse:
        warehouse.ingest([scrape(NOW - timedelta(hours=3))])
        store.mode = "forgets"
        with pytest.raises(TemporaryError, match=r"acknowledged .*\.parquet"):
            warehouse.ingest([scrape(NOW - timedelta(hours=2))])
        store.mode = "honest"
        assert count_rows(warehouse) == 4
        assert warehouse.ingest([scrape(NOW - timedelta(hours=2))]).added == 4


def test_data_that_are_lost_later_are_named_with_their_hours(
    store: LossyStore, tmp_path: Path
) -> None:
    settings = place(store, tmp_path, data="data", cold="cold")
    with Warehouse.open(settings, write=True, clock=lambda: NOW) as warehouse:
        warehouse.ingest([scrape(NOW - timedelta(hours=3))])
        warehouse.ingest([scrape(NOW - timedelta(hours=2))])
        path = max(
            path
            for path, _ in ColdBucket(settings.warehouse.data, settings.warehouse.s3).listed()
            if "/sample/" in path
        )
        ColdBucket(settings.warehouse.data, settings.warehouse.s3).delete(path)
    name = path.rpartition("/")[2]
    with Warehouse.open(settings) as warehouse:
        wrong = {c.subject: c.detail for c in verify_warehouse(warehouse) if not c.ok}
        [file] = [subject for subject in wrong if name in subject]
        assert "2026-11-20 10:00" in wrong[file]
        with pytest.raises(FallowError, match=name):
            count_rows(warehouse)


@pytest.mark.parametrize("places", [{"cold": "cold"}, {"data": "data", "cold": "cold"}])
def test_a_lost_answer_of_a_write_stores_every_row_once(
    store: LossyStore, tmp_path: Path, places: dict[str, str]
) -> None:
    settings = place(store, tmp_path, **places)
    acknowledged = 0
    with Warehouse.open(settings, write=True, clock=lambda: NOW) as warehouse:
        store.mode = "mute"
        for batch in (scrape(OLD), scrape(NOW - timedelta(hours=2)), scrape(NOW)):
            try:
                acknowledged += warehouse.ingest([batch]).added
            except TemporaryError:
                acknowledged += warehouse.ingest([batch]).added
        assert move_to_cold(warehouse, NOW).files == 1
        assert store.objects
        assert count_rows(warehouse) == acknowledged == 12
        assert all(check.ok for check in verify_warehouse(warehouse))
