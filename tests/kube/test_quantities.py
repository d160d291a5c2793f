"""Kubernetes quantities are read exactly."""

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallow.kube.pod_requests import add_amounts
from fallow.kube.quantities import (
    LARGEST_COLUMN,
    is_same_value,
    parse_milli,
    parse_quantity,
    parse_whole,
    write_canonical,
)

DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
FACTORS = {s: Fraction(10) ** p for s, p in DECIMAL.items()} | {
    s: Fraction(2) ** p for s, p in BINARY.items()
}
numbers = st.integers(0, 10**9)
places = st.integers(0, 9)
suffixes = st.sampled_from(sorted(FACTORS))


def bounded(value: Fraction) -> Fraction | None:
    """Return an amount that a server stores."""
    return value if value <= 2**63 - 1 else None


def decimal(number: int, digits: int) -> str:
    """Return number / 10^digits as people write it."""
    text = str(number).zfill(digits + 1)
    return f"{text[:-digits]}.{text[-digits:]}" if digits else text


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
    assert parse_quantity(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        "m",
        "1K",
        "1mi",
        "1 Gi",
        "1e5k",
        "ten",
        "0x10",
        "1e9999",
        "\u0661",
        "8Ei",
        "1e999",
        "9" * 5000,
    ],
)
def test_what_is_no_quantity_is_none(text: str) -> None:
    assert parse_quantity(text) is None


def test_fractions_round_up_as_kubernetes_does() -> None:
    assert parse_milli(parse_quantity("100u")) == 1
    assert parse_whole(parse_quantity("1500m")) == 2
    assert parse_milli(None) is None
    assert parse_whole(None) is None


@given(st.text(max_size=12))
def test_no_text_fails(text: str) -> None:
    assert parse_quantity(text) is None or isinstance(parse_quantity(text), Fraction)


@given(numbers, places, suffixes)
def test_every_suffix_is_read_exactly(number: int, digits: int, suffix: str) -> None:
    value = Fraction(number, 10**digits) * FACTORS[suffix]
    assert parse_quantity(decimal(number, digits) + suffix) == bounded(value)


@given(numbers, places, st.integers(-9, 18), st.sampled_from("eE"))
def test_every_exponent_is_read_exactly(number: int, digits: int, power: int, e: str) -> None:
    value = Fraction(number, 10**digits) * Fraction(10) ** power
    assert parse_quantity(f"{decimal(number, digits)}{e}{power}") == bounded(value)


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        ("8192Mi", "8Gi"),  # the first four: as kube-apiserver 1.36.2 stored them
        ("2000m", "2"),
        ("7476Mi", "7476Mi"),
        ("2500m", "2500m"),
        ("8Gi", "8Gi"),
        ("2", "2"),
        ("1024Ki", "1Mi"),
        ("1023Ki", "1023Ki"),
        ("1.5Gi", "1536Mi"),
        ("0.5Mi", "512Ki"),
        ("0.5Ki", "512"),
        ("0.1Ki", "102400m"),
        ("1024", "1024"),
        ("1000", "1k"),
        ("1500", "1500"),
        ("10000", "10k"),
        ("2500000", "2500k"),
        ("8589934592", "8589934592"),
        ("1000M", "1G"),
        ("0.1", "100m"),
        ("0.5", "500m"),
        ("2.50", "2500m"),
        ("100u", "1m"),
        ("1n", "1m"),
        ("0", "0"),
        ("0Mi", "0"),
        ("0m", "0"),
        ("+4", "4"),
        ("12e6", "12e6"),
        ("12E6", "12e6"),
        ("1e4", "10e3"),
        ("5e0", "5"),
        ("5e-1", "500e-3"),
        ("1024Pi", "1Ei"),
        (8, "8"),
        (0.25, "250m"),
        ("ten", None),
        ("", None),
    ],
)
def test_a_quantity_is_stored_in_its_canonical_form(text: str | float, stored: str | None) -> None:
    assert write_canonical(text) == stored


@given(numbers, places, suffixes)
def test_a_canonical_form_is_its_own_and_loses_at_most_a_thousandth(
    number: int, digits: int, suffix: str
) -> None:
    text = decimal(number, digits) + suffix
    stored, value = write_canonical(text), parse_quantity(text)
    assert (stored is None) == (value is None)
    if stored is None or value is None:
        return
    back = parse_quantity(stored)
    assert back is not None
    assert 0 <= back - value < Fraction(1, 1000)
    assert write_canonical(stored) == stored
    if (value * 1000).denominator == 1:
        assert is_same_value(stored, text)


@given(numbers, st.integers(1, 3), suffixes, suffixes)
def test_values_are_the_same_exactly_when_their_numbers_are(
    number: int, times: int, one: str, other: str
) -> None:
    mine, theirs = f"{number}{one}", f"{number * times}{other}"
    equal = number * FACTORS[one] == number * times * FACTORS[other]
    assert is_same_value(mine, theirs) is equal
    assert is_same_value(theirs, mine) is equal


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        ("8192Mi", "8Gi", True),
        ("8191Mi", "8Gi", False),
        ("2", 2, True),
        ("2000m", 2, True),
        (None, None, True),
        (None, "0", False),
        (0, None, False),
        ("Hold", "Hold", True),
        ("Hold", "None", False),
        (True, "1", False),
        ({"cpu": "1"}, {"cpu": "1"}, True),
    ],
)
def test_what_is_no_quantity_is_compared_as_it_is(one: object, other: object, equal: bool) -> None:
    assert is_same_value(one, other) is equal


@given(st.fractions())
def test_rounding_up_is_that_of_the_fraction(value: Fraction) -> None:
    milli, whole = math.ceil(value * 1000), math.ceil(value)
    assert parse_milli(value) == (milli if abs(milli) <= LARGEST_COLUMN else None)
    assert parse_whole(value) == (whole if abs(whole) <= LARGEST_COLUMN else None)


@given(st.lists(st.dictionaries(st.sampled_from("abc"), st.fractions())))
def test_amounts_add_up_by_resource(parts: list[dict[str, Fraction]]) -> None:
    total: dict[str, Fraction] = {}
    for part in parts:
        add_amounts(total, part)
    names = {name for part in parts for name in part}
    assert total == {n: sum((p.get(n, Fraction(0)) for p in parts), Fraction(0)) for n in names}
