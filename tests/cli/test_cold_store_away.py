"""The cold tier is away for real: its server is killed or hangs, or its folder is not mounted."""

import io
from contextlib import redirect_stdout
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from fallow.errors import TemporaryError, UnreadableDaysError
from fallow.settings import Settings, load
from fallow.tables import Batch
from fallow.window import Window
from runtime.cli import run
from runtime.operations import pipeline
from tests.cli.conftest import Fallow, Ran
from tests.servers import s3
from warehouse import dirty, maintenance, tiers
from warehouse.lake import Warehouse

START = datetime(2026, 11, 5)  # noqa: DTZ001  (tables hold naive UTC)
DAYS = 11
END = START + timedelta(days=DAYS)
NOW = END.replace(tzinfo=UTC) + timedelta(minutes=1)
EVERY = timedelta(minutes=10)
HOT = ("--window", "2026-11-13/2026-11-15")
HOT_COUNT = "SELECT count(*) AS n FROM sample WHERE ts >= '2026-11-14' AND device = 'GPU-0'"
WHOLE = ("--window", f"{START.isoformat()}/{END.isoformat()}")


class World(NamedTuple):
    """A warehouse with archived days whose store is away, and what it answered before."""

    settings: Settings
    config: Path
    hot: str
    whole: str


def samples(start: datetime, count: int, device: str = "GPU-0") -> Batch:
    moments = [start + EVERY * k for k in range(count)]
    return Batch.of(
        "sample",
        {
            "cluster": ["test"] * count,
            "ts": moments,
            "device": [device] * count,
            "interval_s": [EVERY.total_seconds()] * count,
            "model": ["NVIDIA H100 80GB HBM3"] * count,
            "gpu_util_pct": [50.0] * count,
        },
    )


def build(folder: Path, **cold: object) -> tuple[Settings, Path]:
    """Account eleven days; three of samples and two of rollups are archived."""
    values = {
        "home": str(folder / "home"),
        "cluster": "test",
        "warehouse": {"raw_days": 8, "warm_days": 9, **cold},
    }
    config = folder / "fallow.yaml"
    config.write_text(yaml.safe_dump(values), encoding="utf-8")
    settings = load(file=config, environ={}).settings
    with Warehouse.open(settings, write=True, clock=lambda: NOW) as wh:
        wh.ingest([samples(START, DAYS * 144)])
        pipeline.account(wh, Window(START.replace(tzinfo=UTC), END.replace(tzinfo=UTC)))
        moved = tiers.move_to_cold(wh, NOW)
        assert moved.files == 7
    return settings, config


def on_s3(endpoint: str) -> dict[str, object]:
    s3_settings = {
        "endpoint": endpoint,
        "region": "us-east-1",
        "access_key_id": "test",
        "secret_access_key": "test",
    }
    return {"cold": "s3://cold/fallow", "s3": s3_settings}


def describe(settings: Settings, config: Path) -> World:
    """Ask while the store answers."""
    out = []
    for window in (HOT, WHOLE):
        with redirect_stdout(io.StringIO()) as said:
            assert run(["spend", *window, "--config", str(config)]) == 0
        out.append(said.getvalue())
    return World(settings, config, *out)


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> World:
    """Archive days in an S3 server, then end the server."""
    pytest.importorskip("moto.server")
    with s3.serving() as endpoint:
        s3.make_bucket(endpoint, "cold")
        return describe(*build(tmp_path_factory.mktemp("bucket"), **on_s3(endpoint)))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> World:
    """Archive days in a folder, then unmount it: its mount point stays, empty."""
    place = tmp_path_factory.mktemp("folder")
    cold = place / "mount"
    world = describe(*build(place, cold=str(cold)))
    cold.rename(place / "disk")
    cold.mkdir()
    return world


@pytest.fixture(params=["bucket", "folder"])
def world(request: pytest.FixtureRequest) -> World:
    """Return the same warehouse with each kind of store."""
    away: World = request.getfixturevalue(request.param)
    return away


def ask(fallow: Fallow, world: World, *words: str) -> Ran:
    return fallow(*words, "--config", world.config)


def test_hot_days_answer_and_archived_ones_are_named(world: World, fallow: Fallow) -> None:
    assert "total" in world.whole
    hot = ask(fallow, world, "spend", *HOT)
    assert (hot.code, hot.out) == (0, world.hot)
    away = ask(fallow, world, "spend", *WHOLE)
    assert (away.code, away.out) == (75, "")
    assert "2 days not readable: 2026-11-05 to 2026-11-06" in away.err


def test_a_query_needs_only_the_days_that_it_names(world: World, fallow: Fallow) -> None:
    hot = ask(
        fallow,
        world,
        "warehouse",
        "query",
        HOT_COUNT,
        "-o",
        "csv",
    )
    assert (hot.code, hot.out) == (0, "n\n288\n")
    some = "SELECT count(*) AS n FROM sample WHERE ts >= '2026-11-06' AND ts < '2026-11-07 00:10'"
    away = ask(fallow, world, "warehouse", "query", some)
    assert (away.code, away.out) == (75, "")
    assert "2 days not readable: 2026-11-06 to 2026-11-07" in away.err
    every = ask(fallow, world, "warehouse", "query", "SELECT max(gpu_util_pct) FROM sample")
    assert every.code == 75
    assert "3 days not readable: 2026-11-05 to 2026-11-07" in every.err
    refused = ask(fallow, world, "warehouse", "query", "SELECT * FROM read_csv('/etc/passwd')")
    assert refused.code == 2


@pytest.mark.parametrize("words", [("warehouse", "status"), ("analyze", *HOT)])
def test_what_needs_no_archived_day_goes_on(
    world: World, fallow: Fallow, words: tuple[str, ...]
) -> None:
    done = ask(fallow, world, *words)
    assert done.code == 0, done.err
    assert done.out


def test_collecting_and_accounting_go_on(world: World) -> None:
    with Warehouse.open(world.settings, write=True, clock=lambda: NOW) as wh:
        new = samples(END - timedelta(hours=2), 12, "GPU-1")
        assert wh.ingest([new]).added in {12, 0}
        buckets, _ = pipeline.account(wh, Window(NOW - timedelta(hours=3), NOW))
        assert buckets
        hours = wh.query("SELECT count(*) AS n FROM ledger WHERE device = 'GPU-1'")
        assert hours["n"][0].as_py() >= 2
        # Hours that were written before wait for their rollups, the others do not wait for them.
        with wh.transaction() as cursor:
            dirty.mark_hours(cursor, START + timedelta(hours=5), START + timedelta(hours=6))
        pipeline.account(wh, Window(NOW - timedelta(hours=3), NOW))
        marks = wh.query("SELECT bucket FROM unposted")["bucket"].to_pylist()
        assert marks == [START + timedelta(hours=5)]
        late = samples(START, 1, "GPU-2")
        with pytest.raises(UnreadableDaysError, match="2026-11-05"):
            wh.ingest([late])
        assert wh.query("SELECT device FROM device WHERE device = 'GPU-2'").num_rows == 0


def test_a_move_does_nothing_and_says_so_and_compaction_goes_on(world: World) -> None:
    with Warehouse.open(world.settings, write=True, clock=lambda: NOW) as wh:
        before = wh.query(HOT_COUNT)
        with pytest.raises(TemporaryError, match="cold"):
            tiers.move_to_cold(wh, NOW + timedelta(days=1))
        maintenance.compact_warehouse(wh)
        after = wh.query(HOT_COUNT)
        assert after.equals(before)
