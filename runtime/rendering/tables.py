"""Write data on stdout: `-o table | json | csv | md`, the same rows in four formats.

JSON is an object `{"schema": "fallow.<noun>/v1", "<noun>": [...]}` whose field names do not change
within a version; a table is for people and may change.
"""

import math
import os
import re
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

import msgspec

from fallow import money
from fallow.csv_cells import write_rows
from fallow.redaction import redact

EXACT = frozenset({"rows"})
"""Documents that keep every digit: the result of a user's own query."""
_RATE = re.compile(r"usd_h$|usd_per_(?!day$|week$|month$|year$)")
"""Names of prices per unit: they are multiplied, so they have more digits than cents."""
_RATE_STEP = Decimal("0.000001")
_NATIVE_TYPES = (Decimal, datetime)
Rows = Sequence[Mapping[str, Any]]


def write(rows: Any, output: str, *, noun: str, **extra: Any) -> None:
    """Write rows (a list of mappings, or an Arrow table) on stdout.

    `noun` names the list in JSON; `extra` are further fields of the JSON object.
    """
    write_text(render(rows, output, noun=noun, **extra))


def write_text(text: str) -> None:
    """Write text on stdout, no secret in it; if its reader has ended (`| head`), stop."""
    try:
        sys.stdout.write(redact(text))
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def render(rows: Any, output: str, *, noun: str, **extra: Any) -> str:
    """Return rows as text in the requested format, ending in a line break."""
    names, listed = _list_rows(rows)
    if output == "json":
        return document(noun, {**extra, noun: listed})
    if output == "csv":
        if noun not in EXACT:
            listed = [
                {name: _round_figure(value, name) for name, value in r.items()} for r in listed
            ]
        return _csv(names, listed)
    if output == "md":
        return _markdown(names, listed)
    return _table(names, listed)


def document(noun: str, body: Mapping[str, Any]) -> str:
    """Return a JSON object that names its schema, indented, ending in a line break.

    Money is a number, a time is RFC 3339 in UTC, a missing value is null. Dollars
    have cents, hours and prices per unit six decimals; `EXACT` nouns keep every digit.
    """
    if noun not in EXACT:
        body = round_body(body)
    encoder = msgspec.json.Encoder(decimal_format="number", enc_hook=_encode_other)
    raw = encoder.encode({"schema": f"fallow.{noun}/v1", **body})
    return msgspec.json.format(raw, indent=2).decode() + "\n"


def round_body(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return a document's body with the digits that `document` prints; money stays `Decimal`."""
    plain = msgspec.to_builtins(body, enc_hook=_encode_other, builtin_types=_NATIVE_TYPES)
    return {key: _round_figures(part, key) for key, part in plain.items()}


def _round_figures(value: Any, name: str = "") -> Any:
    if isinstance(value, dict):
        return {key: _round_figures(part, key) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_round_figures(part, name) for part in value]
    return _round_figure(value, name)


def _round_figure(value: Any, name: str) -> Any:
    """Return a figure rounded as money or as hours, by its name."""
    if not isinstance(value, (Decimal, float)) or not math.isfinite(value):
        return value
    parts = name.split("_")
    if "usd" in parts:
        exact = value if isinstance(value, Decimal) else Decimal(repr(value))
        return exact.quantize(_RATE_STEP) if _RATE.search(name) else money.cents(exact)
    if isinstance(value, float) and ("hours" in parts or name.endswith("_pct")):
        return round(value, money.MICRO_HOURS)
    return value


def _encode_other(value: Any) -> Any:
    if hasattr(value, "as_py"):
        return value.as_py()
    return str(value)


def _list_rows(rows: Any) -> tuple[list[str], Rows]:
    if hasattr(rows, "to_pylist"):
        return list(rows.column_names), rows.to_pylist()
    names: dict[str, None] = {}
    for row in rows:
        names.update(dict.fromkeys(row))
    return list(names), rows


def _csv(names: Sequence[str], rows: Rows) -> str:
    cells = ([_format_csv(row.get(name)) for name in names] for row in rows)
    return write_rows([names, *cells])


def _markdown(names: Sequence[str], rows: Rows) -> str:
    right = _numeric_columns(names, rows)
    lines = [
        "| " + " | ".join(names) + " |",
        "|" + "|".join("--:" if name in right else "---" for name in names) + "|",
    ]
    for row in rows:
        cells = (format_value(row.get(name)).replace("|", "\\|") for name in names)
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _table(names: Sequence[str], rows: Rows) -> str:
    if not rows:
        return "nothing\n"
    right = _numeric_columns(names, rows)
    cells = [[name.upper() for name in names]]
    cells += [[format_value(row.get(name)) for name in names] for row in rows]
    widths = [max(len(line[i]) for line in cells) for i in range(len(names))]
    out = [
        "  ".join(
            cell.rjust(width) if name in right else cell.ljust(width)
            for cell, width, name in zip(line, widths, names, strict=True)
        ).rstrip()
        for line in cells
    ]
    return "\n".join(out) + "\n"


def _numeric_columns(names: Sequence[str], rows: Rows) -> set[str]:
    return {
        name
        for name in names
        if all(
            isinstance(row.get(name), (int, float, Decimal, type(None)))
            and not isinstance(row.get(name), bool)
            for row in rows
        )
    }


def _format_csv(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    return value if isinstance(value, (int, float, Decimal, type(None))) else str(value)


def format_value(value: Any) -> str:
    """Return a value as text: a dash if missing, with separators, without control characters."""
    if isinstance(value, (Decimal, float)):
        return f"{value:,.2f}"
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S" if value.second else "%Y-%m-%d %H:%M")
    if isinstance(value, (list, tuple)):
        return ", ".join(format_value(item) for item in value)
    if value is None or isinstance(value, bool):
        return {None: "-", True: "yes", False: "no"}[value]
    text = str(value)
    return text if text.isprintable() else "".join(c if c.isprintable() else " " for c in text)
