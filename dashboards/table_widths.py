"""Choose which columns of a table fit on a screen of 1,280 pixels, and how wide texts are.

A browser makes a column as wide as its title and its cells; one that does not fit is cut at the
edge. Widths are estimated from the characters, a little above what a browser takes.
"""

from collections.abc import Collection, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

PAGE_PX, CHOICE_PX = 908, 40
"""The room of a table, and what the column of marks takes of it where rows are chosen."""
CHARACTER_PX, PADDING_PX, LEAST_PX, LEAST_TEXT_PX = 6.9, 20, 52, 110
WIDTHS = {"small": 75, "medium": 200, "large": 400}
FIXED_PX = {"datetime": 132, "date": 100, "progress": 140, "link": 80, "checkbox": 60}
PERCENT, HUNDRED = len("100.0%"), 100
"""Characters of a percentage, and from where on numbers have no digits after the point."""


def fit_columns(columns: Mapping[str, Any], rows: pa.Table, room: int = PAGE_PX) -> dict[str, Any]:
    """Return the columns that fit side by side, with the widths of their texts.

    The first column and those of known dollars are always among them, then the others in their
    order; the last text may be cut. What room is left goes to texts longer than their columns, and
    only then to columns without any value.
    """
    needs = {name: _measure(column, rows[name]) for name, column in columns.items()}
    caps = {name: min(needs[name], _cap(column)) for name, column in columns.items()}
    empty = {name for name in columns if rows[name].null_count == rows.num_rows > 0}
    widths = _claim_room(columns, caps, empty, room)
    for name in filter(widths.__contains__, columns):
        if is_text(columns[name]):
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
