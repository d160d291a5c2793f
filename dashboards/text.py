"""Write names, dollars and shares as text: an outside name is data, whatever it contains."""

import math
import re
from decimal import Decimal
from typing import Any

from fallow.texts import spell_out

_LARGEST = 1e15
"""Numbers from here on are written with an exponent."""
NO_PRICE = "no price"
LONGEST = 80
"""Characters of a name in running text; tables and charts cut longer names themselves."""
UNITS = ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k"))
ROUNDS_UP = 0.9995
"""Of a power of ten: from here on, three digits round up to it."""
_MARKUP = re.compile(r"([\\`*_{}\[\]()#+\-.!|~:$<>&^=@\"'/])")
_LINKED = re.compile(r"\\[:@]|(?i:www)")


def escape(text: object, longest: int = LONGEST) -> str:
    """Return an outside name so that Markdown shows exactly its characters.

    Control and direction characters are spelled out, long names are cut, and the result is
    isolated, so that a name in another direction does not turn the words around it. An invisible
    joiner prevents addresses from becoming links, because links are detected after escapes are
    removed.
    """
    shown_text = spell_out(str(text))
    shown_text = shown_text if len(shown_text) <= longest else shown_text[: longest - 1] + "…"
    return "\u2068" + _LINKED.sub("\\g<0>\u2060", _MARKUP.sub(r"\\\1", shown_text)) + "\u2069"


def format_missing(reason: str = "") -> str:
    """Write that a value is not known, and why where that is known: pages and reports alike."""
    return f"unknown: {reason}" if reason else "unknown"


def format_money(usd: Decimal | None, *, cents: bool = False) -> str:
    """Write dollars with three significant digits, or to the cent; None = no price is known.

    The sign is escaped, because two of them make a formula.
    """
    if usd is None:
        return format_missing(NO_PRICE)
    sign = "-" if usd < 0 else ""
    exact_text = f"{abs(usd):,.2f}"
    return f"{sign}\\$" + (
        exact_text if cents else format_three_digits(abs(usd), units=True, least=2)
    )


def convert_exact(number: float) -> Decimal:
    """Return a number as exactly the decimal that it prints."""
    return Decimal(repr(number))


def format_three_digits(
    number: float | Decimal, *, units: bool = False, least: int | None = None
) -> str:
    """Write a number with three significant digits: 0.0123, 1.5, 12.3, 1,230.

    `units`: thousands are units and zeros stay, as in the figures of a page: 1.50, 1.23k, 123k.
    `least`: below 10 it has exactly so many digits after the point, as dollars have cents.
    """
    scaled, unit = float(number), ""
    if not math.isfinite(scaled):
        return format_missing()
    if abs(scaled) >= _LARGEST:
        return f"{scaled:.2e}"
    for power, name in UNITS if units else ():
        if abs(scaled) >= power * ROUNDS_UP:
            scaled, unit = scaled / power, name
            break
    rounded = float(f"{scaled:.3g}")
    size = abs(rounded)
    digits = 0 if size == 0 else max(0, 2 - math.floor(math.log10(size)))
    if least is not None and not unit:
        digits = min(digits, least) if size else least
    text = f"{rounded:,.{digits}f}"
    return (text if units and (least or size >= 1) else _strip_zeros(text)) + unit


def format_hours(gpu_hours: float) -> str:
    """Write GPU-hours with three significant digits."""
    return f"{format_three_digits(gpu_hours, units=True)} GPU-h"


def format_lost(gpu_hours: float | None, most: float | None) -> str:
    """Write the GPU-hours of lost work; where they are not known, their bound, if there is one."""
    if gpu_hours is not None:
        return format_hours(gpu_hours)
    return format_missing() + ("" if most is None else f", at most {format_hours(most)}")


def format_share(part: Any, whole: Any) -> str:
    """Write a part as a percentage of a whole; of nothing no part is known."""
    return f"{float(part) / float(whole):.1%}" if part is not None and whole else format_missing()


def count(number: int, noun: str) -> str:
    """Write a number of things."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def format_hours_with_share(part: float, whole: float) -> str:
    """Write GPU-hours with their share of all hours beside them, for the line of a figure."""
    return f"{format_hours(part)}, {format_share(part, whole)}"


def _strip_zeros(text: str) -> str:
    return text.rstrip("0").rstrip(".") if "." in text else text
