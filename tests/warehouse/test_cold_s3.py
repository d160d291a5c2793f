"""The cold tier on an S3-compatible server, over HTTP: written, read back, crossed by one query."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from fallow.errors import TemporaryError, WarehouseError
from fallow.settings import Settings, load
from fallow.tables import Batch
from tests.servers import s3
from warehouse import maintenance, tiers
from warehouse.cold_storage import create_s3_client, open_store
from warehouse.lake import Warehouse
from warehouse.place_marks import MARK
from warehouse.relocation import relocate_warehouse
from warehouse.verification import verify_warehouse

pytest.importorskip("moto.server")


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """Start moto's server process on a free port; yield its URL."""
    with s3.serving() as url:
        yield url


def on_s3(tmp_path: Path, endpoint: str, bucket: str = "cold") -> Settings:
    flags = {
        "home": tmp_path / "home",
        "cluster": "test",
        "warehouse.cold": f"s3://{bucket}/fallow",
        "warehouse.s3.endpoint": endpoint,
        "warehouse.s3.region": "us-east-1",
        "warehouse.s3.access_key_id": "test",
        "warehouse.s3.secret_access_key": "test",
    }
    return load(environ={}, flags=flags).settings


def looks(days: int = 10) -> Batch:
    instants = [datetime(2026, 11, 10) + timedelta(hours=12 * k) for k in range(2 * days)]  # noqa: DTZ001
    n = len(instants)
    return Batch.of(
        "sample",
        {
            "cluster": ["test"] * n,
            "ts": instants,
            "device": ["GPU-0"] * n,
            "interval_s": [60.0] * n,
            "gpu_util_pct": [float(k) for k in range(n)],
        },
    )


def test_one_query_crosses_from_the_lake_to_s3(
    tmp_path: Path, endpoint: str, now: datetime
) -> None:
    settings = on_s3(tmp_path, endpoint)
    s3.make_bucket(endpoint, "cold")
    with Warehouse.open(settings, write=True, clock=lambda: now) as wh:
        wh.ingest([looks()])
        before = wh.query("FROM sample ORDER BY ts")
        moved = tiers.move_to_cold(wh, now)
        assert (moved.files, moved.rows) == (3, 6)
        paths = wh.query("SELECT path FROM cold_file")["path"].to_pylist()
        assert all(p.startswith("s3://cold/fallow/sample/month=2026-11/day=") for p in paths)
        mark = f"s3://cold/fallow/{MARK}"
        assert sorted(p for p, _ in open_store(settings).listed()) == sorted([mark, *paths])
        assert wh.query("FROM sample ORDER BY ts").equals(before)
    with Warehouse.open(settings) as reader:
        mean = reader.query("SELECT avg(gpu_util_pct) AS x FROM sample")
        assert mean["x"][0].as_py() == pytest.approx(9.5)


def test_a_store_that_is_away_loses_nothing_and_the_move_is_repeated(
    tmp_path: Path, endpoint: str, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    away = on_s3(tmp_path, "http://127.0.0.1:9", "again")
    with Warehouse.open(away, write=True, clock=lambda: now) as wh:
        wh.ingest([looks()])
        before = wh.query("FROM sample ORDER BY ts")
        with pytest.raises(TemporaryError, match="object store"):
            tiers.move_to_cold(wh, now)
        assert wh.query("FROM sample ORDER BY ts").equals(before)
        assert not list(wh.place.home.glob("staging/*"))
    s3.make_bucket(endpoint, "again")
    with Warehouse.open(on_s3(tmp_path, endpoint, "again"), write=True, clock=lambda: now) as wh:
        assert tiers.move_to_cold(wh, now).files == 3
        assert wh.query("FROM sample ORDER BY ts").equals(before)


def test_a_missing_bucket_is_named(tmp_path: Path, endpoint: str, now: datetime) -> None:
    settings = on_s3(tmp_path, endpoint, "nowhere")
    with Warehouse.open(settings, write=True, clock=lambda: now) as wh:
        wh.ingest([looks()])
        with pytest.raises(WarehouseError, match="no bucket for s3://nowhere/fallow"):
            tiers.move_to_cold(wh, now)


def test_only_folders_and_s3_are_stores(settings: Settings) -> None:
    wrong = settings.warehouse.model_copy(update={"cold": "ftp://somewhere"})
    with pytest.raises(WarehouseError, match="no place we can write"):
        open_store(settings.model_copy(update={"warehouse": wrong}))


def test_the_lake_itself_may_lie_on_s3(tmp_path: Path, endpoint: str, now: datetime) -> None:
    s3.make_bucket(endpoint, "lake")
    settings = on_s3(tmp_path, endpoint, "lake")
    there = settings.warehouse.model_copy(update={"data": "s3://lake/data"})
    settings = settings.model_copy(update={"warehouse": there})
    with Warehouse.open(settings, write=True, clock=lambda: now) as wh:
        wh.ingest([looks()])
        assert wh.ingest([looks()]).duplicates == looks().rows.num_rows
        before = wh.query("FROM sample ORDER BY ts")
        tiers.move_to_cold(wh, now)
        maintenance.compact_warehouse(wh)
        assert wh.query("FROM sample ORDER BY ts").equals(before)
    with Warehouse.open(settings) as reader:
        assert reader.query("FROM sample ORDER BY ts").equals(before)
        checks = list(verify_warehouse(reader))
        assert [check for check in checks if not check.ok] == []
        assert {"sample", "cold sample"} <= {check.subject for check in checks}


def test_data_and_archive_copied_to_another_bucket_are_relocated_by_the_command(
    tmp_path: Path, endpoint: str, now: datetime
) -> None:
    s3.make_bucket(endpoint, "first")
    s3.make_bucket(endpoint, "second")

    def on(bucket: str) -> Settings:
        settings = on_s3(tmp_path, endpoint, bucket)
        data = settings.warehouse.model_copy(update={"data": f"s3://{bucket}/data"})
        return settings.model_copy(update={"warehouse": data})

    with Warehouse.open(on("first"), write=True, clock=lambda: now) as wh:
        wh.ingest([looks()])
        tiers.move_to_cold(wh, now)
        before = wh.query("FROM sample ORDER BY ts")
    with pytest.raises(WarehouseError, match="data files are not under s3://second/data/"):
        relocate_warehouse(on("second"))
    client = create_s3_client(on("first").warehouse.s3)
    for entry in client.list_objects_v2(Bucket="first")["Contents"]:
        source = {"Bucket": "first", "Key": entry["Key"]}
        client.copy_object(Bucket="second", Key=entry["Key"], CopySource=source)
        client.delete_object(**source)
    assert [(part.part, part.missing) for part in relocate_warehouse(on("second"))] == [
        ("data", 0),
        ("archive", 0),
    ]
    with Warehouse.open(on("second")) as reader:
        assert reader.query("FROM sample ORDER BY ts").equals(before)
