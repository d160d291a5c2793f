"""A month of rollups of a fleet whose GPUs change hands, for what reads rollups: ledger, idle."""

import multiprocessing
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from benchmarks.stopwatch import Lap, Stopwatch
from collectors.prices.rate_card import RateCard, batch
from fallow.settings import Settings, load
from fallow.window import Window
from runtime.operations.accounting.idle_hours import write_hours
from warehouse.allocation import write_allocations
from warehouse.lake import Warehouse
from warehouse.ledger import write_ledger
from warehouse.pricing import store_rates

START = datetime(2026, 10, 1, tzinfo=UTC)
NOW = datetime(2026, 11, 20, tzinfo=UTC)
SPOT_CHANGES_PER_DAY = 4
FILLED = "filled.json"
"""A file in the folder of a month that is whole: the laps of its accounting."""
ALLOCATION, LEDGER, IDLE_ROWS = "say who held what", "post the ledger", "keep the idle rows"
KEPT_FOLDER = "BENCHMARKS_MONTH"
"""Folder of months that were filled before, or will be kept; unset: a new one each time."""


@contextmanager
def open_month(gpus: int, days: int) -> Iterator[tuple[Warehouse, Window]]:
    """Yield `days` days of rollups, inventory, prices, allocations, ledger, idle rows and signals.

    The folder that `KEPT_FOLDER` names has it from a run before, or keeps it. Another process fills
    it, so that this one's peak memory is that of what is measured.
    """
    with TemporaryDirectory() as folder:
        home = Path(os.environ.get(KEPT_FOLDER) or folder) / f"{gpus}x{days}"
        if not (home / FILLED).exists():
            home.mkdir(parents=True, exist_ok=True)
            spawned = multiprocessing.get_context("spawn").Process(
                target=fill, args=(home, gpus, days, True, True)
            )
            spawned.start()
            spawned.join()
            if spawned.exitcode:
                raise RuntimeError(f"the month could not be filled (exit {spawned.exitcode})")
        with _open_warehouse(home) as warehouse:
            yield warehouse, Window(START, START + timedelta(days=days))


def read_laps(home: Path) -> dict[str, Lap]:
    """Return what each step of the accounting of a month took when it was filled."""
    return msgspec.json.decode((home / FILLED).read_bytes(), type=dict[str, Lap])


def fill(
    home: Path, gpus: int, days: int, with_ledger: bool = False, with_signals: bool = False
) -> None:
    """Write the month day by day, in the order in which it would have come, and what it took."""
    here = Path(__file__).parent
    size = {"gpus": gpus, "days": days}
    with _open_warehouse(home) as warehouse:
        with warehouse.transaction() as cursor:
            for name in ("month.sql", "month_inventory.sql"):
                _run(cursor, (here / name).read_text(encoding="utf-8"), size)
        text = (here / "month_day.sql").read_text(encoding="utf-8")
        if with_signals:
            text += ";\n" + (here / "month_spoken.sql").read_text(encoding="utf-8")
        for day in range(days):
            with warehouse.transaction() as cursor:
                _run(cursor, (here / "month.sql").read_text(encoding="utf-8"), size)
                _run(cursor, text, {"day": START.replace(tzinfo=None) + timedelta(days=day)})
        store_rates(warehouse, RateCard(clock=lambda: NOW).rates(Window(START, NOW)))
        store_rates(warehouse, batch(_build_spot(days)))
        window = Window(START, START + timedelta(days=days))
        laps = _account(warehouse, window) if with_ledger else {}
    (home / FILLED).write_bytes(msgspec.json.encode(laps))


def _account(warehouse: Warehouse, window: Window) -> dict[str, Lap]:
    watch = Stopwatch()
    write_allocations(warehouse, window)
    laps = {ALLOCATION: watch.read()}
    watch = Stopwatch()
    write_ledger(warehouse, window)
    laps[LEDGER] = watch.read()
    watch = Stopwatch()
    for hours in window.chunks(timedelta(days=1)):
        write_hours(warehouse, hours)
    laps[IDLE_ROWS] = watch.read()
    return laps


def read_peak_gib() -> float:
    """Return the most memory this process has held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def _open_warehouse(home: Path) -> Warehouse:
    settings: Settings = load(environ={}, flags={"home": home, "cluster": "bench"}).settings
    return Warehouse.open(settings, write=True, clock=lambda: NOW)


def _run(cursor: Any, sql: str, parameters: dict[str, Any]) -> None:
    for statement in cursor.extract_statements(sql):
        used = {n: v for n, v in parameters.items() if n in statement.named_parameters}
        cursor.execute(statement, used)


def _build_spot(days: int) -> list[dict[str, Any]]:
    """Return spot prices that change in the middle of hours."""
    step = timedelta(days=1) / SPOT_CHANGES_PER_DAY
    first = START - timedelta(minutes=23)
    return [
        {
            "source": "aws-spot",
            "provider": "aws",
            "region": zone[:-1],
            "zone": zone,
            "instance_type": "p5.48xlarge",
            "gpu_model": "H100",
            "term": "spot",
            "valid_from": first + turn * step,
            "valid_to": first + (turn + 1) * step,
            "as_of": first + turn * step,
            "gpu_count": 8,
            "node_usd_h": Decimal(12 + turn % 5),
            "gpu_usd_h": Decimal(12 + turn % 5) / 10,
        }
        for zone in ("us-west-2a", "us-west-2b", "us-east-1a", "us-east-1b")
        for turn in range((days + 1) * SPOT_CHANGES_PER_DAY)
    ]
