"""Hours without a usable reading are paid: priced where a rate is, else listed as unpriced."""

import csv
import io
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fallow.gpu_models import get_model_name
from fallow.settings import load
from fallow.tables import Batch
from fallow.window import Window
from runtime.operations.accounting import pipeline
from tests.cli.conftest import fallow as fallow  # noqa: PLC0414  (a fixture)
from tests.rates import every_gpu
from warehouse.lake import Warehouse

Fallow = Callable[..., Any]
HOURS, KNOWN = 4, 1
"""Each device reports for an hour, and nothing but its temperature for three."""
START = datetime(2026, 11, 14, 8, tzinfo=UTC)
WINDOW = Window(START, START + timedelta(hours=HOURS))
SPAN = f"{START:%Y-%m-%dT%H:%M}/{WINDOW.end:%Y-%m-%dT%H:%M}"
PRICED, OTHER = "NVIDIA H100 80GB HBM3", "Some Accelerator 9000"
USD_H = Decimal("2.50")


def samples(device: str, model: str) -> Batch:
    minutes = range(HOURS * 60)
    begin = START.replace(tzinfo=None)
    return Batch.of(
        "sample",
        {
            "cluster": ["c"] * len(minutes),
            "ts": [begin + timedelta(minutes=i) for i in minutes],
            "device": [device] * len(minutes),
            "node": [f"n-{device}"] * len(minutes),
            "model": [model] * len(minutes),
            "interval_s": [60.0] * len(minutes),
            "gpu_util_pct": [90.0 if i < KNOWN * 60 else None for i in minutes],
            "temp_c": [40.0] * len(minutes),
            "namespace": ["ml"] * len(minutes),
            "pod": [f"train-{device}"] * len(minutes),
        },
    )


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("unknown") / "home"
    settings = load(environ={}, flags={"home": home, "cluster": "c"}).settings
    rate = every_gpu(str(USD_H))
    place = rate.rows.schema.get_field_index("gpu_model")
    only = rate.rows.set_column(place, "gpu_model", pa.array([get_model_name(PRICED)], pa.string()))
    with Warehouse.open(settings, write=True, clock=lambda: WINDOW.end) as warehouse:
        pipeline.price(warehouse, [Batch("rate", only)])
        pipeline.ingest(warehouse, [samples("a", PRICED), samples("b", OTHER)])
        assert pipeline.account(warehouse, WINDOW)[1] == []
    return home


def test_spend_prices_unknown_hours_and_lists_those_without_a_rate(
    fallow: Fallow, home: Path
) -> None:
    ran = fallow("spend", "--home", home, "--window", SPAN, "--by", "state,model", "-o", "json")
    result = {(r["state"], r["model"]): r for r in json.loads(ran.out)["spend"]}
    unpriced, priced = sorted(
        (row for (state, _), row in result.items() if state == "unknown"),
        key=lambda row: row["usd"] is not None,
    )
    unknown = HOURS - KNOWN
    assert priced["gpu_hours"] == priced["unknown_gpu_hours"] == pytest.approx(unknown, abs=0.02)
    assert priced["usd"] == pytest.approx(float(USD_H) * unknown, abs=0.05)
    assert priced["unpriced_gpu_hours"] == 0
    assert (unpriced["usd"], unpriced["unpriced_gpu_hours"]) == (
        None,
        pytest.approx(unknown, abs=0.02),
    )
    total = json.loads(ran.out)["total"]
    assert total["usd"] == float(USD_H) * HOURS
    assert total["unpriced_gpu_hours"] == HOURS


def test_focus_bills_unknown_hours_and_says_which_have_no_price(
    fallow: Fallow, home: Path, tmp_path: Path
) -> None:
    path = tmp_path / "charges.csv"
    words = ("report", "finance", "--home", home, "--window", SPAN)
    ran = fallow(*words, "-o", "focus", "--file", path)
    assert ran.code == 0, ran.err
    charges = list(csv.DictReader(io.StringIO(path.read_text(encoding="utf-8"))))
    assert sum(Decimal(row["BilledCost"]) for row in charges) == USD_H * HOURS
    assert "4.0 GPU-hours have no price" in ran.err


def test_a_report_bills_them_and_says_how_many_have_no_price(fallow: Fallow, home: Path) -> None:
    ran = fallow("report", "finance", "--home", home, "--window", SPAN, "-o", "md")
    assert ran.code == 0, ran.err
    assert f"${USD_H * HOURS:,.2f}" in ran.out
    assert "have no price" in ran.out
    (answer,) = [line for line in ran.out.splitlines() if "of the GPU-hours have no" in line]
    assert "74.9%" in answer, answer
