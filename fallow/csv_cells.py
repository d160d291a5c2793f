"""Write CSV in which no cell is a formula of a spreadsheet."""

import csv
from collections.abc import Iterable
from typing import Any

GUARD = "'"
"""What a spreadsheet takes as "the rest is text"."""

FORMULA_STARTS = tuple("=+-@\t\r\n＝＋－＠")  # noqa: RUF001  (a spreadsheet takes them as = + - @)
"""First characters with which a spreadsheet begins a formula or a new cell.

Source: OWASP, CSV Injection.
"""


def guard_cell(value: Any) -> Any:
    """Return a cell's value; a text that begins like a formula gets an apostrophe in front.

    A text that begins with an apostrophe gets one more: so a reader that removes one apostrophe
    has every text as it was. All other values (numbers, times, null) stay as they are.
    """
    if isinstance(value, str) and value.startswith((*FORMULA_STARTS, GUARD)):
        return GUARD + value
    return value


def write_rows(rows: Iterable[Iterable[Any]]) -> str:
    """Return rows as CSV, each cell guarded, each row ending in a line feed; null is empty."""
    lines = _Lines()
    # With "\n" as its line end, the writer would leave a carriage return in a cell unquoted: the
    # rest of the cell would be a row of its own.
    writer = csv.writer(lines, lineterminator=_Lines.END)
    writer.writerows([guard_cell(cell) for cell in row] for row in rows)
    return "".join(lines.texts)


class _Lines:
    """The rows that a writer of CSV has written, each as one text."""

    END = "\r\n"

    def __init__(self) -> None:
        self.texts: list[str] = []

    def write(self, text: str) -> None:
        """Take one row."""
        self.texts.append(text.removesuffix(self.END) + "\n")
