"""A small warehouse with archived days, for tests that take their store away."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import yaml

from fallow.settings import Settings, load
from fallow.tables import Batch
from fallow.window import Window
from runtime.operations.accounting import pipeline
from warehouse import tiers
from warehouse.lake import Warehouse

START = datetime(2026, 11, 5)  # noqa: DTZ001  (tables hold naive UTC)
DAYS = 11
END = START + timedelta(days=DAYS)
NOW = END.replace(tzinfo=UTC) + timedelta(minutes=1)
EVERY = timedelta(minutes=10)


def samples(start: datetime, count: int, device: str = "GPU-0") -> Batch:
    instants = [start + EVERY * k for k in range(count)]
    return Batch.of(
        "sample",
        {
            "cluster": ["test"] * count,
            "ts": instants,
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
