"""Kubernetes quantities are read exactly."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.kube.quantities import milli, quantity, whole


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2", 2),
        ("0", 0),
        (8, 8),
        ("500m", Fraction(1, 2)),
        ("0.5", Fraction(1, 2)),
        (".5", Fraction(1, 2)),
        ("1.", 1),
        ("100n", Fraction(1, 10**7)),
        ("250u", Fraction(1, 4000)),
        ("1k", 1000),
        ("1Ki", 1024),
        ("1.5Gi", 1610612736),
        ("64M", 64 * 10**6),
        ("2Ti", 2 * 2**40),
        ("1E", 10**18),
        ("1Ei", 2**60),
        ("12e6", 12 * 10**6),
        ("12E6", 12 * 10**6),
        ("5e-1", Fraction(1, 2)),
        ("128974848000m", 128974848),
        ("-1", -1),
    ],
)
def test_every_notation_is_exact(text: str | float, value: Fraction) -> None:
    assert quantity(text) == value


@pytest.mark.parametrize(
    "text", ["", "m", "1K", "1mi", "1 Gi", "1e5k", "ten", "0x10", "1e9999", "\u0661"]
)
def test_what_is_no_quantity_is_none(text: str) -> None:
    assert quantity(text) is None


def test_fractions_round_up_as_kubernetes_does() -> None:
    assert milli(quantity("100u")) == 1
    assert whole(quantity("1500m")) == 2
    assert milli(None) is None
    assert whole(None) is None


@given(st.text(max_size=12))
def test_no_text_fails(text: str) -> None:
    assert quantity(text) is None or isinstance(quantity(text), Fraction)
