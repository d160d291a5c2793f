"""Few late devices are rolled up beside the transaction that replaces their rows, and alike."""

import threading
from datetime import datetime, timedelta
from typing import Any

import pytest

from fallow.errors import TemporaryError
from fallow.settings import Settings
from fallow.tables import Batch
from warehouse import rollup
from warehouse.lake import Warehouse
from warehouse.rollup import roll_up

START = datetime(2026, 11, 20, 6, 0)  # noqa: DTZ001
DEVICES = [f"GPU-{number}" for number in range(10)]
FIRST = range(1, 40)
LATE = (0.5, 3.5, 17.5, 40.5)
"""Minutes of late samples: before, between and after the others."""


def build_samples(minutes: list[float], devices: list[str] = DEVICES) -> Batch:
    pairs = [(minute, device) for minute in minutes for device in devices]
    return Batch.of(
        "sample",
        {
            "cluster": ["test"] * len(pairs),
            "ts": [START + timedelta(minutes=minute) for minute, _ in pairs],
            "device": [device for _, device in pairs],
            "node": ["10.0.0.1"] * len(pairs),
            "interval_s": [60.0] * len(pairs),
            "gpu_util_pct": [minute for minute, _ in pairs],
        },
    )


def read_rows(warehouse: Warehouse) -> dict[str, list[dict[str, Any]]]:
    return {
        table: warehouse.query(f"FROM {table} ORDER BY ALL").to_pylist()
        for table in ("rollup_5m", "rollup_1h", "device", "dirty", "unposted")
    }


def roll_at_once(settings: Settings, batches: list[Batch], now: datetime) -> dict[str, Any]:
    """Return the rows of a warehouse that was given all samples before its first roll up."""
    home = settings.model_copy(update={"home": settings.home / "straight"})
    with Warehouse.open(home, write=True, clock=lambda: now) as straight:
        straight.ingest(batches)
        roll_up(straight)
        return read_rows(straight)


def test_late_samples_that_lengthen_lives_lead_to_the_same_rows(
    settings: Settings, now: datetime
) -> None:
    soon, late = build_samples(list(FIRST)), build_samples(list(LATE), ["GPU-3"])
    with Warehouse.open_in_memory(settings, clock=lambda: now) as warehouse:
        warehouse.ingest([soon])
        roll_up(warehouse)
        before = read_rows(warehouse)
        warehouse.ingest([late])
        roll_up(warehouse)
        assert read_rows(warehouse) == roll_at_once(settings, [soon, late], now)
        assert read_rows(warehouse)["device"] != before["device"]


def test_hours_of_a_device_that_comes_back_are_marked(settings: Settings, now: datetime) -> None:
    soon, late = build_samples(list(FIRST)), build_samples([270.5], ["GPU-3"])
    with Warehouse.open_in_memory(settings, clock=lambda: now) as warehouse:
        warehouse.ingest([soon])
        roll_up(warehouse)
        warehouse.ingest([late])
        roll_up(warehouse)
        marked = warehouse.query("SELECT bucket FROM unposted ORDER BY bucket")
        hours = [START + timedelta(hours=hour) for hour in range(-1, 5)]
        assert marked.column("bucket").to_pylist() == hours
        assert read_rows(warehouse) == roll_at_once(settings, [soon, late], now)


def test_a_failure_beside_the_transaction_leaves_what_was_there(
    settings: Settings, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    soon, late = build_samples(list(FIRST)), build_samples(list(LATE), ["GPU-3"])
    with Warehouse.open_in_memory(settings, clock=lambda: now) as warehouse:
        warehouse.ingest([soon])
        roll_up(warehouse)
        warehouse.ingest([late])
        before = read_rows(warehouse)

        def stop(*_: object) -> None:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as broken:
            broken.setattr(rollup, "describe_devices", stop)
            with pytest.raises(TemporaryError):
                roll_up(warehouse)
        assert read_rows(warehouse) == before
        roll_up(warehouse)
        assert read_rows(warehouse) == roll_at_once(settings, [soon, late], now)


def test_samples_that_come_meanwhile_wait_for_their_turn(
    settings: Settings, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    soon, late = build_samples(list(FIRST)), build_samples(list(LATE), ["GPU-3"])
    later = build_samples([4.5], ["GPU-3", "GPU-4"])
    begun, stored = threading.Event(), threading.Event()
    roll = rollup.roll_stretch

    with Warehouse.open_in_memory(settings, clock=lambda: now) as warehouse:

        def store() -> None:
            begun.set()
            warehouse.ingest([later])
            stored.set()

        def roll_slowly(*given: Any, **named: Any) -> Any:
            assert threading.current_thread() is not threading.main_thread()
            threading.Thread(target=store).start()
            assert begun.wait(10)
            assert not stored.wait(0.3)
            return roll(*given, **named)

        warehouse.ingest([soon])
        roll_up(warehouse)
        warehouse.ingest([late])
        with monkeypatch.context() as slow:
            slow.setattr(rollup, "roll_stretch", roll_slowly)
            roll_up(warehouse)
        assert stored.wait(10)
        assert warehouse.query("FROM dirty").num_rows > 0
        roll_up(warehouse)
        assert read_rows(warehouse) == roll_at_once(settings, [soon, late, later], now)
