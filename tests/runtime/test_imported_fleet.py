"""What `fallow import samples` reads is all in the ledger, held or not."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from collectors.samples_file import import_samples
from fallow.settings import Settings
from runtime.operations.imports import Importer
from warehouse.lake import Warehouse

pytestmark = pytest.mark.slow

NOW = datetime(2026, 11, 20, tzinfo=UTC)
STEP = timedelta(minutes=5)
COLUMNS = {"workload": "job", "ts": "time", "device": "gpu", "gpu_util_pct": "util"}


def test_devices_that_nobody_holds_are_free_hours(settings: Settings, tmp_path: Path) -> None:
    path = tmp_path / "day.csv"
    first = NOW - timedelta(days=1)
    lines = [
        f"{'' if gpu >= 7 else f'job-{gpu}'},{(first + k * STEP).isoformat()},GPU-{gpu},"
        f"{0 if gpu >= 7 else 90}"
        for gpu in range(11)
        for k in range(288)
    ]
    path.write_text("\n".join(["job,time,gpu,util", *lines]) + "\n")
    with Warehouse.open(settings, write=True, clock=lambda: NOW) as warehouse:
        batches = import_samples(path, COLUMNS, STEP.total_seconds(), "test")
        Importer(settings, NOW).import_into(warehouse, batches)
        rows = warehouse.query("SELECT state, sum(gpu_seconds) / 3600 AS h FROM ledger GROUP BY 1")
    assert {r["state"]: r["h"] for r in rows.to_pylist()} == {"productive": 168, "free": 96}
