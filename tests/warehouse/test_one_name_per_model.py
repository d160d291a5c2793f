"""A GPU model has one name, whoever says it: driver, node label or price; silence costs nothing."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from collectors.prices.rate_card import RateCard
from fallow.settings import Settings, load
from fallow.settings.prices import PriceSettings
from fallow.tables import Batch
from fallow.window import Window
from runtime.operations.accounting import pipeline
from warehouse.lake import Warehouse
from warehouse.pricing import store_rates
from warehouse.spend import read_spend

pytestmark = pytest.mark.slow

DAY = datetime(2026, 11, 20, tzinfo=UTC)
MINUTES = 24 * 60
WINDOW = Window(DAY, DAY + timedelta(days=1))


def samples(model: str, minutes: range) -> Batch:
    rows = [(f"GPU-{k}", m) for k in range(8) for m in minutes]
    first = DAY.replace(tzinfo=None)
    return Batch.of(
        "sample",
        {
            "cluster": ["c"] * len(rows),
            "ts": [first + timedelta(minutes=m) for _, m in rows],
            "device": [device for device, _ in rows],
            "node": ["n"] * len(rows),
            "model": [model] * len(rows),
            "interval_s": [60.0] * len(rows),
            "gpu_util_pct": [90.0] * len(rows),
        },
    )


def node(model: str | None, count: int = 8, **more: Any) -> Batch:
    row = {
        "cluster": "c",
        "node": "n",
        "first_seen": DAY.replace(tzinfo=None) - timedelta(days=30),
        "last_seen": DAY.replace(tzinfo=None) + timedelta(days=1),
        "gpu_resource": "nvidia.com/gpu",
        "gpu_count": count,
        "gpu_model": model,
        "ready": True,
        **more,
    }
    return Batch.of("node", {name: [value] for name, value in row.items()})


def bill(home: Path, batches: list[Batch], prices: PriceSettings) -> tuple[list[str], Decimal]:
    """Return the models of `spend --by model` and the day's dollars; every hour is priced."""
    settings: Settings = load(environ={}, flags={"home": home, "cluster": "c"}).settings
    now = WINDOW.end
    with Warehouse.open_in_memory(settings, clock=lambda: now) as warehouse:
        store_rates(warehouse, RateCard(prices, clock=lambda: now).rates(WINDOW))
        pipeline.ingest(warehouse, batches)
        assert pipeline.account(warehouse, WINDOW)[1] == []
        rows = read_spend(warehouse, WINDOW, ["model"]).to_pylist()
    assert sum(r["unpriced_gpu_hours"] for r in rows) == 0
    # Each row of a device's hour is rounded to 1e-8 dollars.
    return [r["model"] for r in rows], round(sum((r["usd"] for r in rows), Decimal()), 6)


H100 = PriceSettings(by_model={"H100": Decimal("6.88")})
SILENT_5H = range(MINUTES - 5 * 60)


P5: dict[str, Any] = {"instance_type": "p5.48xlarge", "provider": "aws"}
OTHER_PAIRS: list[tuple[str | None, dict[str, Any]]] = [
    ("NVIDIA-H100-80GB-HBM3", {}), ("NVIDIA-H100-80GB-HBM3", P5), (None, {}),
    ("nvidia-h100-80gb", P5),
]  # fmt: skip
"""Pairs of a label and a shape: each shape is in a pair of every run, and the third label is in
test_the_bill_is_the_same_wherever_in_an_hour_the_silence_begins."""


@pytest.mark.parametrize(
    ("label", "shape"),
    [
        ("nvidia-h100-80gb", {}),
        (None, P5),
        *(pytest.param(*pair, marks=pytest.mark.long) for pair in OTHER_PAIRS),
    ],
)
def test_an_exporter_silent_for_five_hours_leaves_the_bill_as_it_is(
    tmp_path: Path, label: str | None, shape: dict[str, Any]
) -> None:
    driver = "NVIDIA H100 80GB HBM3"
    prices = H100 if not shape else PriceSettings(region="us-east-1")
    whole = bill(tmp_path / "a", [node(label, **shape), samples(driver, range(MINUTES))], prices)
    silent = bill(tmp_path / "b", [node(label, **shape), samples(driver, SILENT_5H)], prices)
    assert silent == whole
    assert whole[0] == ["H100"]
    if not shape:
        assert whole[1] == 8 * 24 * Decimal("6.88")


@pytest.mark.parametrize("last", [MINUTES - 304, MINUTES - 299, 61])
def test_the_bill_is_the_same_wherever_in_an_hour_the_silence_begins(
    tmp_path: Path, last: int
) -> None:
    batches = [node("NVIDIA-H100-80GB-HBM3"), samples("NVIDIA H100 80GB HBM3", range(last))]
    assert bill(tmp_path, batches, H100) == (["H100"], 8 * 24 * Decimal("6.88"))


def test_a_model_without_an_entry_is_one_row_as_well(tmp_path: Path) -> None:
    prices = PriceSettings(usd_per_gpu_hour=Decimal(2))
    batches = [node("Acme-Quark-7"), samples("Acme Quark 7", SILENT_5H)]
    assert bill(tmp_path, batches, prices) == (["Acme-Quark-7"], 8 * 24 * Decimal(2))


def test_what_a_device_says_of_itself_outranks_a_coarser_label(tmp_path: Path) -> None:
    prices = PriceSettings(by_model={"A100-80GB": Decimal(4), "A100-40GB": Decimal(3)})
    batches = [node("a100"), samples("NVIDIA A100-SXM4-80GB", SILENT_5H)]
    assert bill(tmp_path, batches, prices) == (["A100-80GB"], 8 * 24 * Decimal(4))


def test_a_new_install_begins_its_ledger_at_its_first_sample(tmp_path: Path) -> None:
    # The nodes were made a month ago; the first sample is of 10:37, and nobody knows of before.
    batches = [node("NVIDIA-H100-80GB-HBM3"), samples("NVIDIA H100 80GB HBM3", range(637, MINUTES))]
    expected = round(8 * (MINUTES - 637) * Decimal("6.88") / 60, 6)
    assert bill(tmp_path, batches, H100) == (["H100"], expected)
