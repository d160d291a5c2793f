"""Write amounts and names as text in a report; names are marked, so that writers isolate them."""

import re
from datetime import datetime
from decimal import Decimal
from typing import Any

from dashboards.reports.document import ReportColumn
from dashboards.text import NO_PRICE, format_missing
from fallow.texts import spell_out

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
    """Write dollars for a headline."""
    if amount is None:
        return format_missing(NO_PRICE)
    return f"{'-' if amount < 0 else ''}${abs(amount):,.{0 if abs(amount) >= MUCH else 2}f}"


def write_usd(amount: Decimal | None) -> str:
    """Write dollars inside a sentence."""
    return f"unknown dollars ({NO_PRICE})" if amount is None else format_usd(amount)


def format_hours(gpu_hours: float) -> str:
    """Write GPU-hours."""
    return f"{gpu_hours:,.{0 if gpu_hours >= MUCH else 1}f} GPU-hours"


def format_cents(amount: Any) -> str:
    """Write dollars with their cents; None = no price is known."""
    if amount is None:
        return format_missing(NO_PRICE)
    exact = amount if isinstance(amount, Decimal) else Decimal(repr(float(amount)))
    cents = exact.quantize(Decimal("0.01"))
    return f"{'-' if cents < 0 else ''}${abs(cents):,.2f}"


def format_cell(value: Any, column: ReportColumn) -> str:
    """Write a table's cell: dollars with their cents.

    A number that is not known is unknown, for the column's reason. A name or time that is null is
    not there: its cell is empty, as on pages.
    """
    if value is None:
        return format_missing(column.missing) if column.is_number else ""
    match column.kind:
        case "usd":
            return format_cents(value)
        case "number":
            return f"{value:,}" if isinstance(value, int) else f"{float(value):,.1f}"
        case "percent":
            return f"{float(value):.1f} %"
        case "moment":
            return f"{value:%Y-%m-%d %H:%M}" if isinstance(value, datetime) else str(value)
        case _:
            return cut(spell_out(str(value)), LONGEST + 30)
