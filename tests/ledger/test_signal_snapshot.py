"""Signals are of one snapshot: a roll up that commits while they are read changes none of them."""

from datetime import UTC, datetime, timedelta
from unittest import mock

import pyarrow as pa
import pytest

from fallow.settings import Settings
from fallow.tables import Batch
from fallow.window import Window
from warehouse import signals
from warehouse.lake import Warehouse
from warehouse.rollup import roll_up
from warehouse.signals import readings
from warehouse.steps import load_step

pytestmark = pytest.mark.slow

T = datetime(2026, 11, 2, tzinfo=UTC)
HOUR = Window(T, T + timedelta(hours=1))


def collect(warehouse: Warehouse, pod: str, second: int) -> None:
    """Store and roll up an hour of one device's samples, one a minute, at a second of it."""
    at = [T.replace(tzinfo=None) + timedelta(minutes=n, seconds=second) for n in range(60)]
    columns = {
        "ts": pa.array(at, pa.timestamp("us")), "cluster": ["c"] * 60, "device": ["d"] * 60,
        "node": ["n"] * 60, "namespace": ["ns" if pod else ""] * 60, "pod": [pod] * 60,
        "interval_s": [30.0] * 60, "gpu_util_pct": [0.0] * 60,
    }  # fmt: skip
    warehouse.ingest([Batch.of("sample", columns)])
    roll_up(warehouse)


def sum_seconds(rows: pa.Table) -> dict[str, float]:
    """Return the seconds of signals by pod."""
    seconds: dict[str, float] = {}
    for row in rows.to_pylist():
        known = row["idle_s"] + row["low_s"] + row["busy_s"] + row["unknown_s"]
        seconds[row["pod"]] = seconds.get(row["pod"], 0.0) + known
    return seconds


@pytest.mark.parametrize("step", ["owners", "readings", "allocation_edges"])
def test_a_roll_up_that_commits_while_signals_are_read_loses_no_seconds(
    settings: Settings, step: str
) -> None:
    with Warehouse.open(settings, write=True) as warehouse:
        collect(warehouse, "", 0)
        before = sum_seconds(signals.derive_signals(warehouse, HOUR))
        assert before == {"": 2250.0}  # a sample is valid for 1.25 intervals

        def load_late(path: str) -> str:
            if path == f"signals/{step}":
                # The samples name a pod that had none before.
                collect(warehouse, "p", 30)
            return load_step(path)

        with mock.patch.object(readings, "load_step", load_late):
            meanwhile = sum_seconds(signals.derive_signals(warehouse, HOUR))
        after = sum_seconds(signals.derive_signals(warehouse, HOUR))
    assert set(after) == {"", "p"}
    assert meanwhile in (before, after)
