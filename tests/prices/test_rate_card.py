"""The rate card: what it says, what overrides it, and which files it refuses."""

import csv
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.prices.card import COLUMNS, _parse_date, read_built_in
from collectors.prices.parts import split
from collectors.prices.rate_card import RateCard
from fallow.errors import UsageError
from fallow.settings.prices import SPOT_ESTIMATE, PriceSettings
from fallow.window import Window

HEADER = ",".join(COLUMNS)
DATED = f"{HEADER},valid_from"
GOOD = "aws,us-east-1,p5.48xlarge,H100,8,192,2048,on-demand,50,2026-10-01,contract,yes"


def rates(now: datetime, *, estimates: bool = False, **settings: Any) -> list[dict[str, Any]]:
    card = RateCard(PriceSettings(**settings), clock=lambda: now)
    found: list[dict[str, Any]] = card.rates(
        Window.last(timedelta(days=7), now=now)
    ).rows.to_pylist()
    return [r for r in found if (r["source"] == SPOT_ESTIMATE) is estimates]


def price(rows: list[dict[str, Any]], kind: str) -> Decimal:
    found = [r["node_usd_h"] for r in rows if r["instance_type"] == kind]
    return Decimal(found[-1])


@given(
    node=st.decimals("0.01", "500", places=8),
    gpus=st.integers(1, 16),
    vcpu=st.integers(0, 256),
    memory=st.integers(0, 4096),
    base=st.decimals("0.01", "20", places=4),
)
def test_a_node_costs_exactly_the_sum_of_its_parts(
    node: Decimal, gpus: int, vcpu: int, memory: int, base: Decimal
) -> None:
    parts = split(node, gpus, Decimal(vcpu), Decimal(memory), gpu_base=base)
    assert parts.total == node
    assert min(parts.gpu, parts.cpu, parts.memory) >= 0


def test_opencost_s_own_example() -> None:
    bases = {"gpu_base": Decimal(30), "cpu_base": Decimal(30), "memory_base": Decimal(10)}
    parts = split(Decimal(35), 1, Decimal(1), Decimal(1), **bases)
    assert [parts.gpu, parts.cpu, parts.memory] == [15, 15, 5]


def test_every_row_has_a_date_a_source_and_a_price_above_zero(now: datetime) -> None:
    rows = rates(now)
    assert all(r["as_of"] and r["reference"] and r["node_usd_h"] > 0 for r in rows)
    for row in (r for r in rows if r["source"] == "rate-card"):
        whole = row["gpu_count"] * row["gpu_usd_h"]
        whole += Decimal(row["vcpu"]) * row["cpu_usd_h"]
        whole += Decimal(row["memory_gib"]) * row["memory_usd_h"]
        assert whole == pytest.approx(row["node_usd_h"], abs=Decimal("0.0001"))


def test_no_offer_is_no_row_and_unsure_prices_say_so(now: datetime) -> None:
    rows = rates(now)
    assert not [r for r in rows if r["instance_type"] == "p5e.48xlarge"]
    azure = next(r for r in rows if r["instance_type"] == "Standard_ND96isr_H200_v5")
    assert azure["reference"].endswith("(unconfirmed)")


def test_a_model_falls_back_on_its_cheapest_offer(now: datetime) -> None:
    derived = {r["gpu_model"]: r for r in rates(now) if r["source"] == "derived"}
    assert derived["H100"]["node_usd_h"] == Decimal("6.88")
    assert derived["H100"]["reference"].startswith("derived: ")


def test_the_card_agrees_with_the_public_list(shared_data: Callable[[str], Path]) -> None:
    with shared_data("cloud/aws_gpu_instances.csv").open() as lines:
        listed = {r["instance_type"]: r for r in csv.DictReader(lines)}
    ours = [r for r in read_built_in() if (r.provider, r.region) == ("aws", "us-east-1")]
    compared = [r for r in ours if r.instance_type in listed]
    assert len(compared) >= 15
    for row in compared:
        there = listed[row.instance_type]
        usd = there["on_demand_usd_hr_us_east_1"]
        assert row.usd_per_hour == (Decimal(usd) if usd else None), row.instance_type
        assert (row.gpu_count, row.vcpu) == (int(there["gpu_count"]), Decimal(there["vcpu"]))


def test_every_on_demand_price_has_an_estimate_for_spot_below_it(
    now: datetime, tmp_path: Path
) -> None:
    path = tmp_path / "card.csv"
    path.write_text(f"{HEADER}\n{GOOD}\n{GOOD.replace('us-east-1,p5.48', 'eu-west-3,p5.48')}\n")
    spot: list[dict[str, Any]] = []
    for settings in ({}, {"discount_pct": 25}, {"rate_card": str(path)}):
        listed = [r for r in rates(now, **settings) if r["term"] == "on-demand"]
        spot = rates(now, estimates=True, **settings)
        ratios = [
            float(s["node_usd_h"] / r["node_usd_h"]) for s, r in zip(spot, listed, strict=True)
        ]
        assert all(0.1 < ratio < 0.7 for ratio in ratios), sorted(ratios)
        assert {s["term"] for s in spot} == {"spot"}
    here, there = (
        (r["node_usd_h"], r["reference"])
        for region in ("us-east-1", "eu-west-3")
        for r in spot
        if (r["region"], r["instance_type"]) == (region, "p5.48xlarge")
    )
    advisor = "AWS Spot Instance Advisor: Linux, 2025-06-28"
    # Published of p5.48xlarge: 44, 46, 52 and 61 %; 52 in us-east-1, none of eu-west-3.
    assert here == (Decimal(24), f"estimate: on-demand less 52 % ({advisor})")
    assert there == (Decimal(27), f"estimate: on-demand less 46 % (median of H100, {advisor})")


def test_settings_discount_and_override(now: datetime) -> None:
    assert price(rates(now, discount_pct=25), "p5.48xlarge") == Decimal("41.28")
    rows = rates(now, usd_per_gpu_hour="1.5", by_model={"H100": "2"})
    flat = {r["gpu_model"]: r["node_usd_h"] for r in rows if r["provider"] == "override"}
    assert flat == {"": Decimal("1.5"), "H100": Decimal(2)}
    references = {r["gpu_model"]: r["reference"] for r in rows if r["provider"] == "override"}
    assert references == {
        "": "settings: prices.usd_per_gpu_hour", "H100": "settings: prices.by_model.H100"
    }  # fmt: skip


def test_a_site_s_card_replaces_only_its_offers(now: datetime, tmp_path: Path) -> None:
    path = tmp_path / "card.csv"
    path.write_text(f"{HEADER}\n{GOOD}\n{GOOD.replace(',50,2026-10-01', ',45,2026-11-15')}\n")
    rows = rates(now, rate_card=str(path))
    mine = [r for r in rows if r["instance_type"] == "p5.48xlarge"]
    assert [(r["node_usd_h"], r["valid_to"]) for r in mine] == [
        (50, datetime(2026, 11, 15)),  # noqa: DTZ001
        (45, None),
    ]
    assert price(rows, "p5en.48xlarge") == Decimal("63.296")


def test_a_row_of_a_card_names_when_it_holds_from(now: datetime, tmp_path: Path) -> None:
    path = tmp_path / "card.csv"
    old, new = f"{GOOD},", f"{GOOD.replace(',50,', ',45,')},2026-10-15"
    path.write_text(f"{DATED}\n{new}\n{old}\n")
    [before, after] = [
        r for r in rates(now.replace(month=10, day=16), rate_card=str(path))
        if r["instance_type"] == "p5.48xlarge"
    ]  # fmt: skip
    change = datetime(2026, 10, 15)  # noqa: DTZ001
    assert (before["node_usd_h"], before["valid_to"]) == (50, change)
    assert (after["node_usd_h"], after["valid_from"]) == (45, change)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "missing"),
        (HEADER, "has no rows"),
        ("provider,price\naws,1", "unknown ['price']"),
        (f"{HEADER}\naws,us-east-1", "does not have 12 values"),
        (f"{HEADER}\n{GOOD.replace(',50,', ',700.0,')}", "'no price'"),
        (f"{HEADER}\n{GOOD.replace(',50,', ',0,')}", "usd_per_hour is '0'"),
        (f"{HEADER}\n{GOOD.replace(',50,', ',nan,')}", "usd_per_hour is 'nan'"),
        (f"{HEADER}\n{GOOD.replace('H100', 'H900')}", "gpu_model is 'H900'"),
        (f"{HEADER}\n{GOOD.replace(',8,', ',2.5,')}", "whole number"),
        (f"{HEADER}\n{GOOD.replace('on-demand', 'lease')}", "term is 'lease'"),
        (f"{HEADER}\n{GOOD.replace('2026-10-01', 'soon')}", "not a date"),
        (f"{HEADER}\n{GOOD.replace('contract', '')}", "reference is empty"),
        (f"{HEADER}\n{GOOD}\n{GOOD}", "stands on line 2 already"),
        (f"{DATED}\n{GOOD},2026-10-15\n{GOOD},2026-10-15", "stands on line 2 already"),
        (f"{DATED}\n{GOOD},soon", "valid_from is 'soon', not a date"),
        (f"{DATED}\n{GOOD},2011-12-31", "the earliest is 2012"),
        (f"{DATED}\n{GOOD},2999-01-01", "in the future"),
    ],
)
def test_bad_cards_are_refused_by_line(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "card.csv"
    path.write_text(text)
    with pytest.raises(UsageError) as refused:
        RateCard(PriceSettings(rate_card=str(path)))
    assert said in refused.value.message
    assert "\n" not in str(refused.value)


def test_a_missing_card_and_an_unknown_model_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot read the rate card"):
        RateCard(PriceSettings(rate_card=str(tmp_path / "none.csv")))
    with pytest.raises(UsageError, match="no known GPU model"):
        RateCard(PriceSettings(by_model={"H900": Decimal(1)}))


@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("2026-07-20", datetime(2026, 7, 20, tzinfo=UTC)),
        ("2026-07-20T12:00:00", datetime(2026, 7, 20, 12, tzinfo=UTC)),
        ("2026-07-20T00:30:00+02:00", datetime(2026, 7, 19, 22, 30, tzinfo=UTC)),
    ],
)
def test_a_date_without_a_zone_is_utc_and_others_are_converted(
    text: str, instant: datetime
) -> None:
    assert _parse_date("card.csv:2", "as_of", text) == instant
