"""Amortised and committed capacity."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from collectors.prices.commitments import (
    Commitments,
)
from collectors.prices.on_prem import OnPrem
from fallow.errors import UsageError
from fallow.settings.prices import ReservedCapacity
from fallow.window import Window

START = datetime(2026, 11, 1, tzinfo=UTC)
DAY = Window(START, START + timedelta(days=1))


def test_the_worked_example_of_an_owned_server() -> None:
    server = OnPrem(
        capex_usd=Decimal(280_000),
        gpus=8,
        kw=Decimal("10.2"),
        running_pct_per_year=Decimal(12),
    )
    parts = server.cost.capital, server.cost.energy, server.cost.running
    assert [round(p, 2) for p in parts] == [Decimal("1.03"), Decimal("0.17"), Decimal("0.48")]
    assert round(server.cost.total, 2) == Decimal("1.67")
    row = server.rates(DAY).rows.to_pylist()[0]
    assert row["node_usd_h"] == 8 * row["gpu_usd_h"]
    assert row["term"] == "amortised"


def test_impossible_figures_are_refused() -> None:
    with pytest.raises(UsageError, match=r"gpus, availability"):
        OnPrem(capex_usd=Decimal(1), gpus=0, availability=Decimal(2))


def test_a_commitment_has_its_rate_while_it_runs_and_none_after_it() -> None:
    promise = ReservedCapacity(
        name="a",
        provider="aws",
        instance_type="p5.48xlarge",
        nodes=2,
        gpus_per_node=8,
        usd_per_node_hour=Decimal(30),
        start=START,
        end=START + timedelta(days=365),
    )
    row = Commitments([promise]).rates(DAY).rows.to_pylist()[0]
    assert (row["term"], row["gpu_usd_h"]) == ("reserved", Decimal("3.75"))
    later = Window(START + timedelta(days=400), START + timedelta(days=401))
    assert Commitments([promise]).rates(later).rows.num_rows == 0
