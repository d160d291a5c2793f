"""Kubernetes quantities: `500m`, `2`, `1.5Gi`, `12e6`, `128974848000m`."""

import math
import re
from fractions import Fraction
from functools import lru_cache

_QUANTITY = re.compile(
    r"([+-]?(?:\d+\.?\d*|\.\d+))(?:[eE]([+-]?\d{1,3})|(n|u|m|k|Ki|[MGTPE]i?))?", re.ASCII
)
_SUFFIX = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "k": Fraction(10**3),
    "M": Fraction(10**6),
    "G": Fraction(10**9),
    "T": Fraction(10**12),
    "P": Fraction(10**15),
    "E": Fraction(10**18),
    "Ki": Fraction(2**10),
    "Mi": Fraction(2**20),
    "Gi": Fraction(2**30),
    "Ti": Fraction(2**40),
    "Pi": Fraction(2**50),
    "Ei": Fraction(2**60),
}


@lru_cache(maxsize=4096)
def quantity(text: str | float) -> Fraction | None:
    """Read a quantity exactly, or return None where the text is none.

    Grammar: k8s.io/apimachinery/pkg/api/resource; an exponent excludes a suffix.
    """
    match = _QUANTITY.fullmatch(str(text).strip())
    if match is None:
        return None
    number, exponent, suffix = match.groups()
    value = Fraction(number)
    if exponent:
        value *= Fraction(10) ** int(exponent)
    return value * _SUFFIX[suffix] if suffix else value


def milli(value: Fraction | None) -> int | None:
    """Return thousandths, rounded up as Kubernetes does."""
    return None if value is None else math.ceil(value * 1000)


def whole(value: Fraction | None) -> int | None:
    """Return the integer, rounded up as Kubernetes does."""
    return None if value is None else math.ceil(value)
