"""The cost of idle pieces by the second: every rate, gap and share by hand and by a loop."""

from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzers.idle import prices
from analyzers.idle.prices import CostMeter
from fallow.window import Window

SECOND = 1_000_000
START = datetime(2026, 11, 1, tzinfo=UTC)
ORIGIN = round(START.timestamp()) * SECOND
Rate = tuple[int, float, float, float | None]
"""Device, first and last second, dollars per hour."""


def meter(rates: list[Rate], devices: int = 2) -> CostMeter:
    """Return the meter of devices with these rates."""
    first = START.replace(tzinfo=None)
    rows = [
        {"cluster": "c", "device": f"d{n}", "from_at": first + timedelta(seconds=begin),
         "to_at": first + timedelta(seconds=end), "loaded_usd_h": usd_h}
        for n, begin, end, usd_h in rates
    ]  # fmt: skip
    schema: dict[str, Any] = {
        "cluster": pl.String,
        "device": pl.String,
        "from_at": pl.Datetime("us"),
        "to_at": pl.Datetime("us"),
        "loaded_usd_h": pl.Float64,
    }
    table = pl.DataFrame(rows, schema=schema)
    named = pl.DataFrame(
        {"number": range(devices), "cluster": ["c"] * devices,
         "device": [f"d{n}" for n in range(devices)]},
        schema_overrides={"number": pl.Int64},
    )  # fmt: skip
    views: Any = None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prices, "derive_device_rates", lambda *_: table.to_arrow())
        return CostMeter(views, Window(START, START + timedelta(hours=1)), named)


def dollars(
    rates: list[Rate], *pieces: tuple[int, int, int], share: float = 1.0, seen: float = 1.0,
    devices: int = 2,
) -> float | None:  # fmt: skip
    """Return the dollars of one row of pieces (device, first and last second)."""
    rows = pl.DataFrame(
        [
            {"row": 0, "number": n, "start": ORIGIN + begin * SECOND, "end": ORIGIN + end * SECOND,
             "share": share, "seen": seen}
            for n, begin, end in pieces
        ]
    )  # fmt: skip
    (usd,) = meter(rates, devices).dollars(rows)["usd"].to_list()
    return None if usd is None else round(usd, 9)


RATES: list[Rate] = [(0, 0, 1800, 2.0), (0, 1800, 3600, 4.0), (1, 600, 3600, 8.0)]


@pytest.mark.parametrize(
    ("pieces", "usd"),
    [
        ([(0, 0, 1800)], 1.0),
        ([(0, 1800, 3600)], 2.0),
        ([(0, 900, 2700)], 1.5),
        ([(0, 0, 3600)], 3.0),
        ([(1, 600, 3600)], 6.666666667),
        ([(1, 1800, 3600)], 4.0),
        ([(1, 599, 3600)], None),  # a second without a price
        ([(0, 0, 3600), (1, 1800, 3600)], 7.0),
        ([(0, 0, 3600), (1, 0, 3600)], None),
        ([(0, 0, 3601)], None),
    ],
)
def test_a_row_costs_what_its_pieces_cost(
    pieces: list[tuple[int, int, int]], usd: float | None
) -> None:
    assert dollars(RATES, *pieces) == usd


def test_the_cost_is_that_of_the_share_and_of_the_time_with_samples() -> None:
    assert dollars(RATES, (0, 0, 3600), share=0.5) == 1.5
    assert dollars(RATES, (0, 0, 3600), seen=0.25) == 0.75


def test_a_hole_between_rates_has_no_price() -> None:
    rates: list[Rate] = [(0, 0, 600, 6.0), (0, 1200, 1800, 6.0), (1, 0, 3600, 1.0)]
    assert dollars(rates, (0, 0, 600)) == 1.0
    assert dollars(rates, (0, 1200, 1800)) == 1.0
    assert dollars(rates, (0, 0, 1800)) is None
    assert dollars(rates, (0, 700, 800)) is None


def test_a_device_without_a_rate_has_no_dollars() -> None:
    assert dollars([(1, 0, 3600, 8.0)], (0, 0, 60)) is None
    assert dollars([(0, 0, 3600, None)], (0, 0, 60)) is None
    assert dollars([(0, 0, 3600, 8.0)], (1, 0, 60)) is None
    assert dollars([(0, 0, 3600, 8.0), (2, 0, 3600, 8.0)], (1, 0, 60), devices=3) is None
    assert dollars([], (0, 0, 60)) is None


@pytest.mark.parametrize(("begin", "usd"), [(60.001, 0.033333056), (60.001001, None)])
def test_two_rates_may_leave_a_millisecond_between_them(begin: float, usd: float | None) -> None:
    assert dollars([(0, 0, 60, 1.0), (0, begin, 120, 1.0)], (0, 0, 120)) == usd


@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.integers(0, 20), st.integers(1, 9), st.integers(1, 9)),
        max_size=6,
    ),
    st.lists(
        st.tuples(st.integers(0, 2), st.integers(0, 30), st.integers(1, 12)),
        min_size=1, max_size=4,
    ),
)  # fmt: skip
def test_dollars_are_those_of_a_loop_over_the_seconds(
    drawn: list[tuple[int, int, int, int]], pieces: list[tuple[int, int, int]]
) -> None:
    rates: list[Rate] = []
    for number, gap, length, usd_h in sorted(drawn):
        begin = gap + max((end for n, _, end, _ in rates if n == number), default=0)
        rates.append((number, begin, begin + length, float(usd_h)))
    cost, priced = 0.0, True
    for number, begin, length in pieces:
        for second in range(begin, begin + length):
            rate = [r for n, a, b, r in rates if n == number and a <= second < b]
            priced &= bool(rate)
            cost += sum(filter(None, rate)) / 3600
    whole = [(number, begin, begin + length) for number, begin, length in pieces]
    expected = round(cost, 9) if priced else None
    assert dollars(rates, *whole, devices=3) == pytest.approx(expected, abs=1e-8)
