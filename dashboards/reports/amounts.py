"""Write amounts and names as text in a report; names are marked, so that writers isolate them."""

import re
from datetime import datetime
from decimal import Decimal
from typing import Any

from dashboards.reports.document import Kind
from dashboards.text import spell_out

OPEN, CLOSE = "\u2068", "\u2069"
"""Marks around an outside name in a sentence; `visible` spells out such characters inside it."""
NAMED = re.compile(f"{OPEN}([^{CLOSE}]*){CLOSE}")
LONGEST = 60
MUCH = 100
"""From here on a headline has no cents, and hours have no decimals."""


def name(text: object, longest: int = LONGEST) -> str:
    """Return an outside name for a sentence: its characters, isolated, cut if too long."""
    return f"{OPEN}{cut(spell_out(str(text)), longest)}{CLOSE}"


def cut(text: str, longest: int) -> str:
    """Return a text of at most so many characters."""
    return text if len(text) <= longest else text[: longest - 1] + "…"


def strip_marks(text: str) -> str:
    """Return a sentence without the marks around names."""
    return text.replace(OPEN, "").replace(CLOSE, "")


def format_usd(amount: Decimal | None) -> str:
    """Write dollars for a headline or a sentence."""
    if amount is None:
        return "no price"
    return f"{'-' if amount < 0 else ''}${abs(amount):,.{0 if abs(amount) >= MUCH else 2}f}"


def format_hours(gpu_hours: float) -> str:
    """Write GPU-hours."""
    return f"{gpu_hours:,.{0 if gpu_hours >= MUCH else 1}f} GPU-hours"


def format_share(part: Any, whole: Any) -> str:
    """Write a part as a percentage of a whole."""
    return f"{float(part) / float(whole):.1%}" if part is not None and whole else "-"


def count(number: int, noun: str) -> str:
    """Write a number of things."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def format_cell(value: Any, kind: Kind) -> str:
    """Write a table's cell: dollars with their cents, a dash for what is not known."""
    if value is None:
        return "-"
    match kind:
        case "usd":
            amount = value if isinstance(value, Decimal) else Decimal(repr(float(value)))
            cents = amount.quantize(Decimal("0.01"))
            return f"{'-' if cents < 0 else ''}${abs(cents):,.2f}"
        case "number":
            return f"{value:,}" if isinstance(value, int) else f"{float(value):,.1f}"
        case "percent":
            return f"{float(value):.1f} %"
        case "moment":
            return f"{value:%Y-%m-%d %H:%M}" if isinstance(value, datetime) else str(value)
        case _:
            return cut(spell_out(str(value)), LONGEST + 30)
