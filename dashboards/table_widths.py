"""Choose which columns of a table fit on a screen of 1,280 pixels, and how wide texts are.

A browser makes a column as wide as its title and its cells; one that does not fit is cut at the
edge. Widths are estimated from the characters, a little above what a browser takes. Long
texts (of width `large`) are broken into lines: they claim half the width that they need on one.
"""

from collections.abc import Collection, Mapping
from math import ceil
from textwrap import wrap
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

PAGE_PX, CHOICE_PX = 908, 40
"""The room of a table, and what the column of marks takes of it where rows are chosen."""
CHARACTER_PX, PADDING_PX, LEAST_PX, LEAST_TEXT_PX, BROKEN_PX = 6.9, 20, 52, 110, 200
WIDTHS = {"small": 75, "medium": 200, "large": 400}
FIXED_PX = {"datetime": 132, "date": 100, "progress": 140, "link": 80, "checkbox": 60}
ROW_PX, TWO_LINES_PX, LINE_PX, MOST_LINES, MOST_JUDGED = 35, 64, 18, 3, 100
"""Height of a row of one line, below which Streamlit breaks no text, and of a line more; texts of a
column, the longest first, that choose how many lines a row has."""
PERCENT, HUNDRED = len("100.0%"), 100
"""Characters of a percentage, and from where on numbers have no digits after the point."""


def fit_columns(columns: Mapping[str, Any], rows: pa.Table, room: int = PAGE_PX) -> dict[str, Any]:
    """Return the columns that fit side by side, with the widths of their texts.

    The first column and those of known dollars are always among them, then the others in their
    order; the last text may be cut. What room is left goes to texts longer than their columns, and
    only then to columns without any value.
    """
    needs = {name: _measure(column, rows[name]) for name, column in columns.items()}
    caps = {
        name: min(_claim_width(column, rows[name], needs[name]), _cap(column))
        for name, column in columns.items()
    }
    empty = {name for name in columns if rows[name].null_count == rows.num_rows > 0}
    widths = _claim_room(columns, caps, empty, room)
    # Names are not broken: they are served before long texts, of which the longest comes first.
    texts = [name for name in columns if name in widths and is_text(columns[name])]
    long = sorted((n for n in texts if is_long(columns[n])), key=needs.__getitem__, reverse=True)
    for name in (*(n for n in texts if n not in long), *long):
        left = max(0, room - sum(widths.values()))
        widths[name] = max(widths[name], min(needs[name], widths[name] + left))
    for name in filter(empty.__contains__, columns):
        if caps[name] <= room - sum(widths.values()):
            widths[name] = caps[name]
    return {
        name: {**column, "width": widths[name]} if is_text(column) else column
        for name, column in columns.items()
        if name in widths
    }


def choose_row_height(columns: Mapping[str, Any], rows: pa.Table) -> int:
    """Return the pixels of a row in which long texts are whole, of three lines at most.

    `columns`: those of long texts, with the widths that `fit_columns` chose.
    """
    lines = (
        len(wrap(text, round((column["width"] - PADDING_PX) / CHARACTER_PX)))
        for name, column in columns.items()
        for text in _list_sentences(rows[name])
    )
    most = min(MOST_LINES, max(lines, default=1))
    return ROW_PX if most == 1 else max(TWO_LINES_PX, ROW_PX + LINE_PX * (most - 1))


def _list_sentences(cells: pa.ChunkedArray) -> list[str]:
    """Return the longest texts of several words."""
    if not pa.types.is_string(cells.type):
        return []
    sentences = pc.unique(cells.filter(pc.match_substring(cells, " ")))
    order = pc.array_sort_indices(pc.utf8_length(sentences), order="descending")
    texts: list[str] = sentences.take(order[:MOST_JUDGED]).to_pylist()
    return texts


def _claim_width(column: Mapping[str, Any], cells: pa.ChunkedArray, need: int) -> int:
    """Return the width that a column claims: of long texts half."""
    if need <= BROKEN_PX or not is_long(column) or not _list_sentences(cells):
        return need
    return ceil(need / 2)


def _claim_room(
    columns: Mapping[str, Any], caps: Mapping[str, int], empty: Collection[str], room: int
) -> dict[str, int]:
    """Return the widths of the columns with values for which there is room, by priority."""
    first = next(iter(columns))
    dollars = [name for name in columns if name not in empty and is_dollars(columns[name])]
    widths = {name: caps[name] for name in (first, *dollars)}
    for name, column in columns.items():
        if name in widths or name in empty:
            continue
        left, width = room - sum(widths.values()), caps[name]
        if width > left >= LEAST_TEXT_PX and is_text(column):
            width = left
        if width <= left:
            widths[name] = width
    return widths


def is_dollars(column: Mapping[str, Any]) -> bool:
    """Return whether a column's configuration is that of dollars."""
    text = (column.get("type_config") or {}).get("format") or ""
    return text == "dollar" or str(text).startswith("$")


def is_text(column: Mapping[str, Any]) -> bool:
    """Return whether a column's configuration is that of names or texts."""
    return (column.get("type_config") or {}).get("type") == "text"


def is_long(column: Mapping[str, Any]) -> bool:
    """Return whether a column's configuration is that of texts that are broken into lines."""
    return is_text(column) and column.get("width") == "large"


def _cap(column: Mapping[str, Any]) -> int:
    width = column.get("width")
    if width is None or not is_text(column):
        return PAGE_PX
    return WIDTHS[width] if isinstance(width, str) else int(width)


def _measure(column: Mapping[str, Any], cells: pa.ChunkedArray) -> int:
    """Return the pixels that a column's title and its longest cell take."""
    kind = column.get("type_config") or {}
    title = len(column.get("label") or "")
    if kind.get("type") in FIXED_PX:
        return max(FIXED_PX[kind["type"]], _count_pixels(title))
    if pa.types.is_string(cells.type):
        longest = pc.max(pc.utf8_length(cells)).as_py() or 0
    else:
        longest = _count_characters(str(kind.get("format") or ""), cells)
    return _count_pixels(max(title, longest))


def _count_pixels(characters: int) -> int:
    return max(LEAST_PX, round(characters * CHARACTER_PX) + PADDING_PX)


def _count_characters(form: str, cells: pa.ChunkedArray) -> int:
    """Return the characters of the longest number of a column, as its format writes it."""
    unknown = len("unknown") if cells.null_count else 0
    if form.endswith("%%"):
        return max(PERCENT, unknown)
    bounds = pc.min_max(cells).as_py() if _is_number(cells.type) else {}
    largest = max((abs(float(value)) for value in bounds.values() if value is not None), default=0)
    digits = len(f"{largest:,.0f}") + (1 if form.startswith(("$", "dollar")) else 0)
    return max(digits + (len(".00") if form == "dollar" or largest < HUNDRED else 0), unknown)


def _is_number(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    )
