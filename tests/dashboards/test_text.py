"""Numbers on screen: three digits, a unit, and unknown where nothing is known."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboards.text import (
    convert_exact,
    format_hours,
    format_money,
    format_share,
    format_three_digits,
)


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0"),
        (0.1234, "0.123"),
        (1.234, "1.23"),
        (9.996, "10.0"),
        (99.96, "100"),
        (999.4, "999"),
        (999.6, "1.00k"),
        (133_633, "134k"),
        (999_600, "1.00M"),
        (-21_504, "-21.5k"),
        (7.2e12, "7.20T"),
    ],
)
def test_a_number_has_three_digits_and_its_unit(number: float, text: str) -> None:
    assert format_three_digits(number, units=True) == text


@given(st.floats(1, 1e14))
def test_three_digits_are_within_half_of_the_last_one(number: float) -> None:
    units = {"k": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}
    text = format_three_digits(number, units=True)
    shown = float(text.rstrip("kMBT")) * units.get(text[-1], 1.0)
    assert abs(shown - number) <= 0.0051 * number


def test_unknown_is_said_and_never_zero() -> None:
    assert format_money(None) == "unknown: no price"
    assert format_share(1, 0) == "unknown"
    assert format_share(None, 10) == "unknown"
    assert format_money(Decimal()) == "\\$0.00"
    assert format_money(Decimal("-1234.5")) == "-\\$1.23k"
    assert format_money(convert_exact(61_706.11), cents=True) == "\\$61,706.11"
    assert format_hours(21_504.0) == "21.5k GPU-h"
