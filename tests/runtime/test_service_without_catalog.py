"""`fallow up` while PostgreSQL is killed: every scrape is stored, once; the service outlives it."""

import json
import signal
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fallow.settings import load
from runtime.operations.ingestion.spool import Spool
from tests.actions.loop.site import Site, bare
from tests.cli.test_acting import done
from tests.cli.test_acting import site as site  # noqa: PLC0414  (a fixture)
from tests.runtime.test_api import JSON
from tests.runtime.test_roles import answer, rest, until, up
from tests.servers import postgres
from tests.soak.exporters import CountingExporter, number_of
from warehouse.lake import Warehouse

WAIT_S = 60.0


@pytest.fixture
def exporter() -> Iterator[CountingExporter]:
    made = CountingExporter("n1", 1)
    yield made
    made.close()


@pytest.fixture(scope="module")
def server() -> Iterator[postgres.Server]:
    with postgres.serving() as made:
        yield made


@pytest.fixture
def environ(server: postgres.Server, tmp_path: Path, exporter: CountingExporter) -> dict[str, str]:
    return {
        "FALLOW_HOME": str(tmp_path / "home"),
        "FALLOW_CLUSTER": "c",
        "FALLOW_WAREHOUSE__CATALOG": server.catalog(f"lake{abs(hash(tmp_path)) % 10**9}"),
        "FALLOW_WAREHOUSE__QUEUE_ROWS": "0",
        "FALLOW_EXPORTERS__TARGETS": json.dumps([exporter.url]),
        "FALLOW_SERVICE__COLLECT_EVERY": "1s",
    }


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)  # another process's work


def metric(listen: object, name: str) -> float:
    text = answer(f"http://{listen}/metrics")[1]
    return sum(float(li.split()[-1]) for li in text.splitlines() if li.startswith(name))


def stored(environ: dict[str, str]) -> list[int]:
    with Warehouse.open(load(environ=environ).settings) as lake:
        energies = lake.query("SELECT energy_mj FROM sample ORDER BY ts")["energy_mj"].to_pylist()
    return [number_of(energy) for energy in energies]


# make test has its parts: test_ingest_queue.py kills the process at both places.
@pytest.mark.long
def test_every_scrape_is_stored_once_although_the_catalog_and_the_process_were_killed(
    tmp_path: Path, environ: dict[str, str], server: postgres.Server
) -> None:
    queue = tmp_path / "home" / "queue"
    with up(tmp_path, "--role", "collector", **environ) as first:
        listen = until(first, "up")["listen"]
        wait_for(lambda: metric(listen, "fallow_collect_rows_total") > 0)
        server.stop()
        try:
            wait_for(lambda: len([*queue.glob("*.arrow")]) > 1)
            wait_for(lambda: metric(listen, "fallow_queue_bytes") > 0)
            first.send_signal(signal.SIGKILL)
            first.wait(60)
        finally:
            server.start()
    with Spool(queue, 2**30) as spool:
        batches = [batch for file in spool.files for batch in spool.read(file)]
    waiting = [
        number_of(energy)
        for batch in batches
        if batch.table == "sample"
        for energy in batch.rows["energy_mj"].to_pylist()
    ]
    assert len(waiting) > 1
    with up(tmp_path, "--role", "collector", **environ) as second:
        until(second, "collected")
        wait_for(lambda: not any(queue.glob("*.arrow")))
        second.send_signal(signal.SIGTERM)
        output = rest(second)
        assert second.wait(60) == 0, output
    numbers = stored(environ)
    assert len(numbers) == len(set(numbers))
    # What was on disk when the process died is stored, and nothing before it is missing.
    assert set(range(1, max(waiting) + 1)) <= set(numbers), (numbers, waiting)


def test_a_service_that_starts_without_its_catalog_waits_for_it(
    tmp_path: Path, environ: dict[str, str], server: postgres.Server, site: Site
) -> None:
    result, before = done(site)
    home = {**environ, "FALLOW_HOME": str(site.folder)}
    server.stop()
    away = True
    try:
        with up(tmp_path, "--role", "collector", "--role", "actor", **home) as process:
            listen = until(process, "begins")["listen"]
            until(process, "the catalog is away: it is waited for")
            assert answer(f"http://{listen}/healthz")[0] == 200
            code, text = answer(f"http://{listen}/readyz")
            assert (code, "the catalog cannot be reached" in text) == (503, True), text
            undo = json.dumps({"action": result.action.id, "by": "ann"}).encode()
            request = urllib.request.Request(f"http://{listen}/v1/undo", undo, JSON)
            with urllib.request.urlopen(request) as response:
                assert json.loads(response.read())["result"] == "undone"
            assert bare(site.get("Deployment", "web")) == before
            server.start()
            away = False
            until(process, "collected")
            process.send_signal(signal.SIGTERM)
            output = rest(process)
            assert process.wait(60) == 0, output
    finally:
        if away:
            server.start()
    # The journal's copy followed, and so did the rows of sources.
    assert stored(home)
    with Warehouse.open(load(environ=home).settings) as lake:
        rows = lake.query("SELECT kind FROM action ORDER BY seq").to_pylist()
    assert [row["kind"] for row in rows] == site.kinds()


def test_a_stop_ends_a_service_that_waits_for_its_catalog(
    tmp_path: Path, environ: dict[str, str], server: postgres.Server
) -> None:
    server.stop()
    try:
        with up(tmp_path, "--role", "collector", **environ) as process:
            until(process, "the catalog is away: it is waited for")
            process.send_signal(signal.SIGTERM)
            output = rest(process)
            assert process.wait(60) == 0, output
    finally:
        server.start()
