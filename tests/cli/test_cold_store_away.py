"""The cold tier is away for real: its server is killed or hangs, or its folder is not mounted."""

import io
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

import pytest

from fallow.errors import TemporaryError, UnreadableDaysError
from fallow.settings import Settings
from fallow.window import Window
from runtime.cli import run
from runtime.operations.accounting import pipeline
from tests.archived import END, NOW, START, build, on_s3, samples
from tests.cli.conftest import Fallow, Ran
from tests.servers import s3
from warehouse import catalog, dirty, maintenance, tiers
from warehouse.lake import Warehouse

HOT = ("--window", "2026-11-13/2026-11-15")
HOT_COUNT = "SELECT count(*) AS n FROM sample WHERE ts >= '2026-11-14' AND device = 'GPU-0'"
WHOLE = ("--window", f"{START.isoformat()}/{END.isoformat()}")


class World(NamedTuple):
    """A warehouse with archived days whose store is away, and what it answered before."""

    settings: Settings
    config: Path
    hot: str
    whole: str


def describe(settings: Settings, config: Path) -> World:
    """Ask while the store answers."""
    out = []
    with redirect_stdout(io.StringIO()):  # what is not analysed could save unknown dollars
        assert run(["analyze", *HOT, "--config", str(config)]) == 0
    for window in (HOT, WHOLE):
        with redirect_stdout(io.StringIO()) as answer:
            assert run(["spend", *window, "--config", str(config)]) == 0
        out.append(answer.getvalue())
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
    # Totals and audits of accounted hours are hot; an hour that waits for its rollup is not.
    away = ask(fallow, world, "spend", *WHOLE)
    assert (away.code, away.out) in {(0, world.whole), (75, "")}
    assert (away.code == 75) is ("not readable: 2026-11-05" in away.err)


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
        marks = wh.query(dirty.MARKED_HOURS)["bucket"].to_pylist()
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


@contextmanager
def stuck(answer: bytes) -> Iterator[tuple[int, list[bytes]]]:
    """Answer each request and repeat the last byte for ever; yield the port and the requests."""
    requests: list[bytes] = []
    server = socket.create_server(("127.0.0.1", 0))

    def drip(client: socket.socket) -> None:
        with client, suppress(OSError):
            requests.append(client.recv(65536).splitlines()[0])
            client.sendall(answer)
            while True:
                client.sendall(answer[-1:])
                time.sleep(0.1)

    def accept() -> None:
        with suppress(OSError):
            while True:
                client, _ = server.accept()
                threading.Thread(target=drip, args=(client,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield server.getsockname()[1], requests
    finally:
        server.close()


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(b"HTTP/1.1 200 OK\r\nX-Slow: a", id="drips"),
        # A store that drips is the harder to give up: each byte begins a read anew.
        pytest.param(b"", id="hangs", marks=pytest.mark.long),
    ],
)
def test_a_store_that_never_ends_its_answer_is_given_up_once(
    bucket: World, answer: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog, "COLD_TIMEOUT_S", 1)
    with stuck(answer) as (port, requests):
        warehouse = bucket.settings.warehouse
        endpoint = warehouse.s3.model_copy(update={"endpoint": f"http://127.0.0.1:{port}"})
        elsewhere = warehouse.model_copy(update={"s3": endpoint})
        settings = bucket.settings.model_copy(update={"warehouse": elsewhere})
        with Warehouse.open(settings) as wh:
            assert wh.query(HOT_COUNT)["n"].to_pylist() == [288]
            assert requests == []
            _expect_unreadable(wh)
            sent = len(requests)
            assert sent > 0
            for _ in range(3):
                _expect_unreadable(wh)
            assert len(requests) == sent, "the figures of a page do not wait one after the other"


def _expect_unreadable(warehouse: Warehouse) -> None:
    with pytest.raises(UnreadableDaysError, match="2026-11-05 to 2026-11-07"):
        warehouse.query("SELECT max(gpu_util_pct) AS most FROM sample")
