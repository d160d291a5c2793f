"""Write data on stdout: `-o table | json | csv | md`, the same rows in four formats.

JSON is an object `{"schema": "fallow.<noun>/v1", "<noun>": [...]}` whose field names do not change
within a version; a table is for people and may change. On a terminal it has the columns that fit,
the most important first (`columns.csv`).
"""

import math
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from functools import cache
from typing import Any

import msgspec

from fallow import money
from fallow.csv_cells import write_rows
from fallow.redaction import redact
from fallow.resources import read_table
from fallow.texts import escape_markdown, make_printable, spell_out

EXACT = frozenset({"rows"})
"""Documents that keep every digit: the result of a user's own query."""
_RATE = re.compile(r"usd_h$|usd_per_(?!day$|week$|month$|year$)")
"""Names of prices per unit: they are multiplied, so they have more digits than cents."""
_RATE_STEP = Decimal("0.000001")
_NATIVE_TYPES = (Decimal, datetime)
UNNAMED = "sign"
"""What a CSV calls the column that has no name in a table: one sign for each row."""
NOTHING = "nothing\n"
"""A table without rows."""
GAP = 2
"""Spaces between two columns."""
PART = 10_000
"""Rows that become Python's own at a time."""
EMPTY = ("", "-")
HOURS_DECIMALS = 5
"""36 ms: parts are stored in millionths, and a sum of theirs would be 4.000001."""
BELOW = 4
"""Spaces before a text below its row."""
SHORT = 16
"""Characters that a cut text has at least."""
Rows = Sequence[Mapping[str, Any]]


def write(rows: Any, output: str, *, noun: str, **extra: Any) -> None:
    """Write rows (a list of mappings, or an Arrow table) on stdout.

    `noun` names the list in JSON; `extra` are further fields of the JSON object. A table without
    rows is a line on stderr.
    """
    text = render(rows, output, noun=noun, **extra)
    if text == NOTHING:
        sys.stderr.write(text)
        return
    write_text(text)


def name_clusters(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rows with their column `cluster` where they are of several, else without it."""
    if len({row["cluster"] for row in rows}) > 1:
        return list(rows)
    return [{name: row[name] for name in row if name != "cluster"} for row in rows]


def write_text(text: str, *, coloured: bool = False) -> None:
    """Write text on stdout, no secret in it; if its reader has ended (`| head`), stop.

    `coloured`: it has colours of its own, and nothing else that controls a terminal.
    """
    try:
        sys.stdout.write(redact(text) if coloured else spell_out(redact(text), in_lines=True))
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
        return _write_csv(names, listed)
    if output == "md":
        return _write_markdown(names, listed)
    return _render_table(names, listed, noun)


def get_width() -> int | None:
    """Return how many characters of a table fit in a line; None = stdout is no terminal.

    `COLUMNS` sets it, in a pipe too.
    """
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns):
        return int(columns)
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def fit_columns(
    widths: Mapping[str, int],
    noun: str,
    limit: int,
    figures: Collection[str] = (),
    required: Collection[str] = (),
) -> dict[str, int]:
    """Return the columns that fit into a line, in their order, and how wide each is fitted.

    `widths`: characters of each column; `figures`: the columns of numbers. The most important come
    first, and the first one always stays; `required` ones are as important. Only texts are cut, to
    `SHORT` characters at least: never a name, an id or a figure; nor a text that has a line of its
    own below its row where it does not fit.
    """
    rules = _read_rules(noun)
    ranks = rules.ranks
    texts = widths.keys() - rules.whole - set(figures)
    first = next(iter(widths))
    order = sorted(
        widths,
        key=lambda name: (name != first, name not in required, ranks.get(name, len(ranks))),
    )
    fitted: dict[str, int] = {}
    left, has_lines = limit + GAP, False
    for name in order:
        need = min(widths[name], SHORT) if name in texts else widths[name]
        has_line = name in rules.below and (has_lines or GAP + need > left)
        has_lines |= has_line
        if name == first or (GAP + need <= left and not has_line):
            fitted[name] = need
            left -= GAP + need
    for name, width in fitted.items():
        fitted[name] = min(widths[name], width + max(left, 0))
        left -= fitted[name] - width
    return {name: fitted[name] for name in widths if name in fitted}


class ColumnRules(msgspec.Struct, frozen=True):
    """How the columns of one noun are fitted into a line (`columns.csv`)."""

    ranks: dict[str, int]
    """Of its own columns, the most important first."""
    names: frozenset[str]
    """What rows are called by."""
    whole: frozenset[str]
    """Never cut."""
    below: frozenset[str]
    """Not cut either: on a line of its own where it does not fit."""


@cache
def _read_rules(noun: str) -> ColumnRules:
    rows = [r for r in read_table("runtime.rendering", "columns.csv") if r["noun"] in {noun, "*"}]
    own = [row["column"] for row in rows if row["noun"] == noun]
    return ColumnRules(
        ranks={column: rank for rank, column in enumerate(own)},
        names=frozenset(row["column"] for row in rows if row["noun"] == "*"),
        whole=frozenset(row["column"] for row in rows if row["may_cut"] != "yes"),
        below=frozenset(row["column"] for row in rows if row["may_cut"] == "below"),
    )


def document(noun: str, body: Mapping[str, Any]) -> str:
    """Return a JSON object that names its schema, indented, ending in a line break.

    Money is a number, a time is RFC 3339 in UTC, a missing value is null. Dollars
    have cents, hours five decimals, prices per unit six; `EXACT` nouns keep every digit.
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
        return exact.quantize(_RATE_STEP) if _RATE.search(name) else money.round_to_cents(exact)
    if isinstance(value, float) and ("hours" in parts or name.endswith("_pct")):
        return round(value, HOURS_DECIMALS)
    return value


def _encode_other(value: Any) -> Any:
    if hasattr(value, "as_py"):
        return value.as_py()
    return str(value)


def _list_rows(rows: Any) -> tuple[list[str], Rows]:
    if hasattr(rows, "to_pylist"):
        # In parts: another thread may run in between (`runtime.cli.query_limits`).
        parts = (batch.to_pylist() for batch in rows.to_batches(max_chunksize=PART))
        return list(rows.column_names), [row for part in parts for row in part]
    names: dict[str, None] = {}
    for row in rows:
        names.update(dict.fromkeys(row))
    return list(names), rows


def _write_csv(names: Sequence[str], rows: Rows) -> str:
    cells = ([_format_csv(row.get(name)) for name in names] for row in rows)
    return write_rows([[name or UNNAMED for name in names], *cells])


def _write_markdown(names: Sequence[str], rows: Rows) -> str:
    right = _find_numeric_columns(names, rows)
    lines = [
        "| " + " | ".join(n if n.isidentifier() else escape_markdown(n) for n in names) + " |",
        "|" + "|".join("--:" if name in right else "---" for name in names) + "|",
    ]
    for row in rows:
        cells = (escape_markdown(format_value(row.get(name))) for name in names)
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _render_table(names: Sequence[str], rows: Rows, noun: str) -> str:
    if not rows:
        return NOTHING
    right = _find_numeric_columns(names, rows)
    cells = {name: [name.upper(), *(format_value(row.get(name)) for row in rows)] for name in names}
    widths = {name: max(map(len, column)) for name, column in cells.items()}
    limit = get_width()
    required = {"cluster"} if _has_namesakes(rows, noun) else ()
    fitted = widths if limit is None else fit_columns(widths, noun, limit, right, required)
    columns = (_align(cells[name], fitted[name], right=name in right) for name in fitted)
    lines = [(" " * GAP).join(line) for line in zip(*columns, strict=True)]
    below = [name for name in names if name in _read_rules(noun).below and name not in fitted]
    if limit is not None and below:
        lines = _add_texts(lines, {name: cells[name] for name in below}, limit)
    hidden = len(names) - len(fitted) - len(below)
    more = [f"({hidden} more columns: -o csv)"] if hidden else []
    return "\n".join([*(line.rstrip() for line in lines), *more]) + "\n"


def _has_namesakes(rows: Rows, noun: str) -> bool:
    """Return whether rows of two clusters could not be distinguished without the cluster."""
    rules, columns = _read_rules(noun), {name for row in rows for name in row} - {"cluster"}
    named = sorted(columns & rules.names & rules.ranks.keys(), key=rules.ranks.__getitem__)
    pairs = {(row.get("cluster"), *(row.get(name) for name in named[:1])) for row in rows}
    clusters = {row.get("cluster") for row in rows} - {None, ""}
    return len(clusters) > 1 and len({pair[1:] for pair in pairs}) < len(pairs)


def _add_texts(lines: list[str], texts: Mapping[str, list[str]], limit: int) -> list[str]:
    """Return lines with texts: the first at the line's end where it fits, others below it."""
    first, room = next(iter(texts)), limit - len(lines[0]) - GAP
    added = []
    for number, line in enumerate(lines):
        rest = {name: cells[number] for name, cells in texts.items() if cells[number] not in EMPTY}
        inline = first in rest and len(rest[first]) <= room and (number or room >= SHORT)
        added.append(f"{line}{' ' * GAP}{rest.pop(first)}" if inline else line)
        for name, text in rest.items() if number else ():
            words = f"{name.replace('_', ' ')}: {text}"
            width = max(limit - BELOW, SHORT)
            added += [
                f"{' ' * BELOW}{part}"
                for part in textwrap.wrap(
                    words, width, subsequent_indent="  ", break_on_hyphens=False
                )
            ]
    return added


def _align(column: Sequence[str], width: int, *, right: bool) -> list[str]:
    texts = (cell if len(cell) <= width else f"{cell[: width - 1]}…" for cell in column)
    return [cell.rjust(width) if right else cell.ljust(width) for cell in texts]


def _find_numeric_columns(names: Sequence[str], rows: Rows) -> set[str]:
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
    return make_printable(str(value))
