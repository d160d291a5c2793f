"""`fallow warehouse verify` while hours wait for their accounting: they are named, not judged."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from fallow.errors import WarehouseError
from fallow.settings import Settings, load
from fallow.tables import Batch
from fallow.window import Window
from runtime.operations.accounting import pipeline
from runtime.operations.accounting.ledger_totals import format_unaccounted
from tests.rates import every_gpu
from warehouse import pricing
from warehouse.lake import Warehouse
from warehouse.pricing import store_rates

Fallow = Callable[..., Any]

START = datetime(2026, 11, 20, 8)  # noqa: DTZ001  (tables hold naive UTC)
LATER = datetime(2026, 11, 29, tzinfo=UTC)
FIRST_MINUTES, MORE_MINUTES = 210, 20
_KILLED = """
import os, signal, sys
from pathlib import Path
from runtime.operations.accounting import pipeline
from tests.cli.test_unaccounted_hours import MORE_MINUTES, account, read_settings

def kill_itself(*_):
    os.kill(os.getpid(), signal.SIGKILL)

pipeline.write_ledger_stage = kill_itself
account(read_settings(Path(sys.argv[1])), MORE_MINUTES)
"""


def read_settings(home: Path) -> Settings:
    return load(environ={}, flags={"home": home, "cluster": "test"}).settings


def account(settings: Settings, more: int = 0) -> None:
    """Store the first minutes of two GPUs, or `more` minutes after them, and account them."""
    minutes = range(FIRST_MINUTES, FIRST_MINUTES + more) if more else range(FIRST_MINUTES)
    samples = [(START + timedelta(minutes=k), device) for k in minutes for device in "ab"]
    end = START.replace(tzinfo=UTC) + timedelta(minutes=minutes[-1] + 1)
    data = {
        "cluster": ["test"] * len(samples),
        "ts": [ts for ts, _ in samples],
        "device": [f"GPU-{device}" for _, device in samples],
        "node": ["node"] * len(samples),
        "model": ["NVIDIA H100 80GB HBM3"] * len(samples),
        "interval_s": [60.0] * len(samples),
        "gpu_util_pct": [90.0] * len(samples),
    }
    with Warehouse.open(settings, write=True, clock=lambda: end) as warehouse:
        warehouse.ingest([Batch.of("sample", data), every_gpu("2")])
        pipeline.account(warehouse, Window(end - timedelta(hours=4), end))


@pytest.fixture(scope="module")
def accounted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a home whose hours are all accounted; tests change copies of it."""
    home = tmp_path_factory.mktemp("unaccounted") / "home"
    account(read_settings(home))
    return home


@pytest.fixture(scope="module")
def killed_home(accounted: Path) -> Path:
    """Return a home whose accounting was killed between the rollup and the ledger."""
    home = shutil.copytree(accounted, accounted.parent / "killed")
    killed = subprocess.run(
        [sys.executable, "-c", _KILLED, str(home)],
        check=False,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])},
    )
    assert killed.returncode == -signal.SIGKILL
    return home


@pytest.fixture
def home(killed_home: Path, tmp_path: Path) -> Path:
    """Return a copy of that home."""
    return shutil.copytree(killed_home, tmp_path / "home")


def verify(fallow: Fallow, home: Path) -> tuple[int, dict[str, dict[str, Any]]]:
    ran = fallow("warehouse", "verify", "--home", home, "-o", "json")
    return ran.code, {row["check"]: row for row in json.loads(ran.out)["checks"]}


def test_hours_of_a_killed_accounting_are_named_and_not_judged(fallow: Fallow, home: Path) -> None:
    code, checks = verify(fallow, home)
    assert code == 0, [row for row in checks.values() if row["status"] == "failed"]
    assert checks["hours"]["status"] == "not checked"
    named = "2 hours not accounted yet: 2026-11-20 10:00 to 2026-11-20 12:00 (UTC)"
    assert checks["hours"]["detail"].startswith(named)
    assert checks["audit ledger_capacity"]["status"] == "ok"
    assert checks["audit ledger_capacity"]["detail"] == (
        "without the hours that are not accounted yet"
    )


def test_a_wrong_hour_beside_them_still_fails(fallow: Fallow, home: Path) -> None:
    wrong = f"UPDATE ledger SET seconds = seconds - 60 WHERE bucket = '{START}'"
    with (
        Warehouse.open(read_settings(home), write=True) as warehouse,
        warehouse.transaction() as cursor,
    ):
        cursor.execute(wrong)
    code, checks = verify(fallow, home)
    assert code == 1
    assert checks["audit ledger_capacity"]["status"] == "failed"
    assert "2 rows" in checks["audit ledger_capacity"]["detail"]
    assert checks["hours"]["status"] == "not checked"


def test_the_next_accounting_leaves_no_hour_unnamed_or_unchecked(
    fallow: Fallow, home: Path
) -> None:
    account(read_settings(home), MORE_MINUTES + 1)
    code, checks = verify(fallow, home)
    assert code == 0
    assert {row["status"] for row in checks.values()} == {"ok"}
    assert "hours" not in checks


def test_an_audit_that_left_out_every_hour_is_not_ok(
    fallow: Fallow, accounted: Path, tmp_path: Path
) -> None:
    home = shutil.copytree(accounted, tmp_path / "home")
    with Warehouse.open(read_settings(home), write=True, clock=lambda: LATER) as warehouse:
        store_rates(warehouse, every_gpu("3"))  # marks every hour of the ledger
    code, checks = verify(fallow, home)
    assert code == 0, [row for row in checks.values() if row["status"] == "failed"]
    statuses = {name: row["status"] for name, row in checks.items()}
    assert statuses["audit ledger_capacity"] == statuses["audit bill_sum"] == "not checked"
    assert statuses["audit bill"] == "ok"


def test_prices_and_the_marks_of_their_hours_are_stored_together(
    accounted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = read_settings(shutil.copytree(accounted, tmp_path / "home"))

    def end_process(*_: object) -> None:
        raise KeyboardInterrupt

    with Warehouse.open(settings, write=True, clock=lambda: LATER) as warehouse:
        before = warehouse.query("SELECT * EXCLUDE (as_of) FROM rate")
        monkeypatch.setattr(pricing, "_note_changes", end_process)
        with pytest.raises(KeyboardInterrupt):
            store_rates(warehouse, every_gpu("3"))
        assert warehouse.query("SELECT * EXCLUDE (as_of) FROM rate").equals(before)


def test_many_stretches_are_counted() -> None:
    hours = [("", START + timedelta(hours=2 * number)) for number in range(7)]
    text = format_unaccounted(hours)
    assert text.startswith("7 hours not accounted yet: 2026-11-20 08:00 to 2026-11-20 09:00, ")
    assert "and 2 more stretches (UTC)" in text


@pytest.mark.parametrize("stage", ["write_allocations", "write_ledger_stage"])
def test_an_hour_that_cannot_be_accounted_waits_and_the_others_do_not(
    fallow: Fallow,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    stage: str,
) -> None:
    settings, broken = read_settings(home), START.replace(tzinfo=UTC) + timedelta(hours=2)
    write = getattr(pipeline, stage)

    def fail(warehouse: Warehouse, part: Window) -> None:
        if part.start <= broken < part.end:
            raise WarehouseError("a data file is damaged")
        write(warehouse, part)

    monkeypatch.setattr(pipeline, stage, fail)
    account(settings, MORE_MINUTES + 1)
    _, checks = verify(fallow, home)
    assert "1 hour not accounted yet: 2026-11-20 10:00" in checks["hours"]["detail"]
    assert checks["audit ledger_capacity"]["status"] == "ok"
    monkeypatch.setattr(pipeline, stage, write)
    account(settings, MORE_MINUTES + 2)
    assert "hours" not in verify(fallow, home)[1]


def test_a_fault_of_every_hour_is_no_fault_of_an_hour(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise WarehouseError("the disk refuses to read or write")

    monkeypatch.setattr(pipeline, "write_ledger_stage", fail)
    with pytest.raises(WarehouseError, match="the disk refuses"):
        account(read_settings(home), MORE_MINUTES + 1)
