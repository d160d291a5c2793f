"""Read Kubernetes quantities: `500m`, `2`, `1.5Gi`, `12e6`, `128974848000m`.

The server rewrites what it stores in a list of resources (`8192Mi` comes back as `8Gi`), so two
quantities are compared by value, never as text.
"""

import math
import re
from fractions import Fraction
from functools import lru_cache
from typing import Any

_QUANTITY = re.compile(
    r"([+-]?(?:\d+\.?\d*|\.\d+))(?:[eE]([+-]?\d{1,3})|(n|u|m|k|Ki|[MGTPE]i?))?", re.ASCII
)
_DECIMAL = {-3: "n", -2: "u", -1: "m", 0: "", 1: "k", 2: "M", 3: "G", 4: "T", 5: "P", 6: "E"}
_BINARY = {0: "", 1: "Ki", 2: "Mi", 3: "Gi", 4: "Ti", 5: "Pi", 6: "Ei"}
_SUFFIX = {
    **{suffix: Fraction(1000) ** power for power, suffix in _DECIMAL.items()},
    **{suffix: Fraction(1024) ** power for power, suffix in _BINARY.items()},
}
_MOST = 6
"""Largest powers of 1000 and of 1024 that have a suffix: E and Ei."""
LONGEST = 64
"""Characters of a quantity: int64 has 19 digits, and a server stores at most nine places."""
LARGEST = 2**63 - 1
"""The largest quantity (k8s.io/apimachinery/pkg/api/resource, maxAllowed): a server caps larger
ones, so nobody meant them."""
LARGEST_COLUMN = 2**53
"""What a row may have of one object, in thousandths, bytes or devices: exact in a double, and a
thousand of them sum to an int64. In bytes it is 8 PiB."""


def parse_quantity(text: str | float) -> Fraction | None:
    """Return a quantity exactly, or None where the text is not a quantity that a server stores.

    Grammar: k8s.io/apimachinery/pkg/api/resource; an exponent excludes a suffix.
    """
    if isinstance(text, str):
        return _parse(text) if len(text) <= LONGEST else None
    return _parse(str(text)) if abs(text) <= LARGEST else None


def require_quantity(text: str | float) -> Fraction:
    """Return a quantity exactly.

    Raises:
        ValueError: it is none.
    """
    value = parse_quantity(text)
    if value is None:
        raise ValueError(f"quantities must match the regular expression of one: {text!r}")
    return value


@lru_cache(maxsize=4096)
def _parse(text: str) -> Fraction | None:
    match = _QUANTITY.fullmatch(text.strip())
    if match is None:
        return None
    number, exponent, suffix = match.groups()
    value = Fraction(number)
    if exponent:
        value *= Fraction(10) ** int(exponent)
    if suffix:
        value *= _SUFFIX[suffix]
    return value if abs(value) <= LARGEST else None


@lru_cache(maxsize=4096, typed=True)
def write_canonical(text: str | float) -> str | None:
    """Return a quantity as the server stores it in a list of resources; None = not a quantity.

    `8192Mi` is stored as `8Gi`, `2000m` as `2`, `1.5Gi` as `1536Mi`, `0.1` as `100m`; `7476Mi`
    and `2500m` stay. Values below a thousandth are rounded up. The family of suffixes stays, but
    binary suffixes need a whole number of at least 1024 (`0.5Mi` is `512Ki`, `1Ki` stays, `1023`
    has no suffix). The server rewrites only built-in kinds: a custom resource keeps its text.
    """
    value = parse_quantity(text)
    match = None if value is None else _QUANTITY.fullmatch(str(text).strip())
    if match is None or value is None:
        return None
    if value == 0:
        return "0"
    value = Fraction(_round_away(value * 1000), 1000)
    _, exponent, suffix = match.groups()
    if suffix and suffix.endswith("i") and value.denominator == 1 and abs(value) >= 1024:  # noqa: PLR2004  (the base of binary suffixes)
        power = _count_times(value, 1024, _MOST)
        return f"{value / 1024**power}{_BINARY[power]}"
    # The number is written without zeros at its end, before the largest power of 1000 that leaves
    # it whole.
    number, power = (
        (value, _count_times(value, 1000, _MOST)) if value.denominator == 1 else (value, -1)
    )
    number /= Fraction(1000) ** power
    if exponent is None:
        return f"{number}{_DECIMAL[power]}"
    return f"{number}e{3 * power}" if power else f"{number}"


def is_same_value(left: Any, right: Any) -> bool:
    """Return whether two values are the same, quantities by value: `8192Mi` is `8Gi`, 2 is `2`.

    Texts that are not quantities are compared as they are, and never equal a quantity.
    """
    if left == right:
        return bool(left == right)
    left_value, right_value = _parse_value(left), _parse_value(right)
    return left_value is not None and left_value == right_value


def parse_milli(value: Fraction | None) -> int | None:
    """Return thousandths, rounded up as Kubernetes does; None = more than a row may have."""
    # Of the two integers: a product of fractions is reduced first, which takes eight times as long.
    return None if value is None else _bound(-(-value.numerator * 1000 // value.denominator))


def parse_whole(value: Fraction | None) -> int | None:
    """Return the integer, rounded up as Kubernetes does; None = more than a row may have."""
    return None if value is None else _bound(-(-value.numerator // value.denominator))


def _bound(amount: int) -> int | None:
    return amount if abs(amount) <= LARGEST_COLUMN else None


def _parse_value(value: Any) -> Fraction | None:
    return parse_quantity(value) if isinstance(value, str | int | float) else None


def _round_away(value: Fraction) -> int:
    """Round away from zero."""
    return math.ceil(value) if value > 0 else math.floor(value)


def _count_times(value: Fraction, base: int, limit: int) -> int:
    """Return how often a whole number can be divided by the base, at most `limit`."""
    times, number = 0, value.numerator
    while times < limit and number % base == 0:
        times, number = times + 1, number // base
    return times
