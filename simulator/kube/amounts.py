"""Read quantities such as `500m` and `2Gi`, and what a pod reserves of each resource."""

import re
from collections.abc import Iterable, Mapping
from fractions import Fraction
from functools import lru_cache
from typing import Any

_SHAPE = re.compile(r"^([+-]?[0-9]*\.?[0-9]+|[+-]?[0-9]+\.)([a-zA-Z]*|[eE][+-]?[0-9]+)$")
_SUFFIX = {
    "": Fraction(1),
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    **{s: Fraction(10 ** (3 * (i + 1))) for i, s in enumerate(("k", "M", "G", "T", "P", "E"))},
    **{
        s: Fraction(2 ** (10 * (i + 1))) for i, s in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"))
    },
}

Amounts = dict[str, Fraction]


def parse_amount(text: object) -> Fraction:
    """Return a quantity.

    Raises:
        ValueError: it is none.
    """
    return _read(str(text).strip())


@lru_cache(maxsize=4096)
def _read(text: str) -> Fraction:
    match = _SHAPE.match(text)
    if match is None:
        raise ValueError(f"quantities must match the regular expression of one: {text!r}")
    number, suffix = match.groups()
    if suffix in _SUFFIX:
        return Fraction(number) * _SUFFIX[suffix]
    if suffix[0] in "eE" and suffix[1:].lstrip("+-").isdecimal():
        return Fraction(number) * Fraction(10) ** int(suffix[1:])
    raise ValueError(f"no suffix {suffix!r} of a quantity: {text!r}")


def format_amount(value: Fraction) -> str:
    """Return a quantity as the server writes it: whole, else in thousandths."""
    if value.denominator == 1:
        return str(value.numerator)
    return f"{-(-value * 1000 // 1)}m"


def sum_pod_amounts(spec: Mapping[str, Any], side: str = "requests") -> Amounts:
    """Return what a pod reserves (`requests`) or may use (`limits`) of each resource.

    Init containers run alone before the others, so the greater counts; those that restart always
    stay and add.
    """
    running: Amounts = {}
    for container in spec.get("containers") or ():
        _add(running, _get_amounts(container, side))
    stay: Amounts = {}
    most: Amounts = {}
    for container in spec.get("initContainers") or ():
        own = _get_amounts(container, side)
        if container.get("restartPolicy") == "Always":
            _add(stay, own)
            _raise_to(most, stay)
        else:
            _raise_to(most, {k: own.get(k, Fraction(0)) + stay.get(k, Fraction(0)) for k in own})
    _add(running, stay)
    _raise_to(running, most)
    values = (spec.get("resources") or {}).get(side) or {}
    running.update({k: parse_amount(v) for k, v in values.items()})
    overhead = {k: parse_amount(v) for k, v in (spec.get("overhead") or {}).items()}
    _add(running, {k: v for k, v in overhead.items() if side == "requests" or k in running})
    return running


def _get_amounts(container: Mapping[str, Any], side: str) -> Amounts:
    resources = container.get("resources") or {}
    return {k: parse_amount(v) for k, v in (resources.get(side) or {}).items()}


def _add(into: Amounts, more: Amounts) -> None:
    for key, value in more.items():
        into[key] = into[key] + value if key in into else value


def _raise_to(into: Amounts, other: Amounts) -> None:
    for key, value in other.items():
        into[key] = max(into.get(key, Fraction(0)), value)


def sum_amounts(parts: Iterable[Amounts]) -> Amounts:
    """Return the sum of amounts by resource."""
    out: Amounts = {}
    for part in parts:
        _add(out, part)
    return out
