"""`fallow import` beside a running service: the service stores what the import reads."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fallow.errors import TemporaryError
from fallow.settings import Settings, load
from runtime.operations.ingestion.import_stores import (
    FOLDER,
    LOCK,
    REQUEST,
    RESULT,
    ImportRequest,
    ServiceStore,
    take_requests,
)
from runtime.operations.ingestion.spool import write_durably
from warehouse.lake import Warehouse

Fallow = Callable[..., Any]
CSV = "ts,pod,util,uuid\n" + "".join(
    f"2026-11-20T10:{minute:02d}:00,job-{gpu},{50 + gpu},GPU-{gpu}\n"
    for minute in range(60)
    for gpu in range(2)
)
WORDS = ("--columns", "ts=ts,workload=pod,gpu_util_pct=util,device=uuid", "--interval", "60s")


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return load(environ={}, flags={"home": tmp_path / "home", "cluster": "c"}).settings


@contextmanager
def service(settings: Settings) -> Iterator[Warehouse]:
    """Run what a service does about imports, in a thread of its own."""
    stop = threading.Event()
    with Warehouse.open(settings, write=True) as lake, take_requests(lake) as take:
        assert take is not None

        def work() -> None:
            while not stop.wait(0.02):
                take()

        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield lake
        finally:
            stop.set()
            thread.join()


def hours(lake: Warehouse) -> float:
    rows = lake.query("SELECT coalesce(sum(gpu_seconds), 0) / 3600 AS hours FROM ledger")
    return float(rows.to_pylist()[0]["hours"])


def test_an_import_beside_the_service_is_stored_and_accounted(
    fallow: Fallow, settings: Settings, tmp_path: Path
) -> None:
    (tmp_path / "s.csv").write_text(CSV)
    words = ("import", "samples", "s.csv", *WORDS, "--rate", "2.5", "--cluster", "c", "-o", "json")
    alone = fallow(*words, "--home", tmp_path / "alone")
    with service(settings) as lake:
        ran = fallow(*words, "--home", settings.home)
        assert (ran.code, ran.out) == (0, alone.out), ran.err
        assert hours(lake) == pytest.approx(2.0)
        usd = lake.query("SELECT sum(usd) AS usd FROM ledger").to_pylist()[0]["usd"]
        assert float(usd) == pytest.approx(5.0)
        again = fallow(*words, "--home", settings.home)
        assert '"added": 0' in again.out
        assert hours(lake) == pytest.approx(2.0)
    assert [p.name for p in (settings.home / FOLDER).iterdir()] == [LOCK]


def test_beside_another_command_it_is_refused_as_before(
    fallow: Fallow, settings: Settings, tmp_path: Path
) -> None:
    (tmp_path / "s.csv").write_text(CSV)
    with service(settings):
        pass
    with Warehouse.open(settings, write=True):
        ran = fallow("import", "samples", "s.csv", *WORDS, "--home", settings.home)
    assert ran.code == 75
    assert "one writing process" in ran.err


def test_what_the_service_refuses_is_the_error_of_the_import(
    fallow: Fallow, settings: Settings, tmp_path: Path
) -> None:
    (tmp_path / "s.csv").write_text(CSV.replace("2026", "1971"))
    with service(settings):
        ran = fallow("import", "samples", "s.csv", *WORDS, "--home", settings.home)
        assert "before 2012" in ran.err
        write_durably(settings.home / FOLDER / f"1{REQUEST}", b"no request")
        answer = settings.home / FOLDER / f"1{RESULT}"
        while not answer.exists():
            time.sleep(0.02)
        assert b"refused" in answer.read_bytes()
        answer.unlink()


def test_a_service_that_ends_leaves_the_request_to_its_next_start(settings: Settings) -> None:
    with service(settings):
        pass
    with Warehouse.open(settings) as views:
        folder = settings.home / FOLDER
        store = ServiceStore(views, folder)
        with pytest.raises(TemporaryError, match="ended before"):
            store._send(ImportRequest())
    assert len([*folder.glob(f"*{REQUEST}")]) == 1
    with service(settings):
        while [*folder.glob(f"*{REQUEST}")]:
            time.sleep(0.02)
    assert len([*folder.glob(f"*{RESULT}")]) == 1
