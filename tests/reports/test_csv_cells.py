"""Cells that a spreadsheet would run as a formula, in every CSV that Fallow writes."""

import csv
import io
import re
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboards.reports import as_csv, focus
from dashboards.reports.document import ReportColumn, ReportDocument, ReportSection, ReportTable
from fallow.csv_cells import FORMULA_STARTS, guard_cell
from fallow.window import Window
from runtime.rendering.tables import render
from tests.lint.names import PACKAGES, ROOT

CELLS = [
    ("=1+1", "'=1+1"),
    ("=cmd|' /C calc'!A0", "'=cmd|' /C calc'!A0"),
    ("+1", "'+1"),
    ("-1", "'-1"),
    ("-", "'-"),
    ("@SUM(A1)", "'@SUM(A1)"),
    ("\t=1", "'\t=1"),
    ("\r=1", "'\r=1"),
    ("\n=1", "'\n=1"),
    ("\uff1d1+1", "'\uff1d1+1"),
    ("\uff0d1", "'\uff0d1"),
    ("'=1", "''=1"),
    ("'", "''"),
    ("", ""),
    ("a=1", "a=1"),
    (" =1", " =1"),
    ('a"b,c\nd', 'a"b,c\nd'),
    ("1-2", "1-2"),
]
NUMBERS = [-1, 0, -1.5, Decimal("-0.25"), True, None]
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))


def _read(text: str) -> list[list[str]]:
    return [*csv.reader(io.StringIO(text, newline=""))]


@pytest.mark.parametrize(("cell", "written"), CELLS)
def test_a_cell_that_begins_like_a_formula_is_a_text(cell: str, written: str) -> None:
    assert guard_cell(cell) == written
    document = _tabulate(cell)
    assert _read(render([{"a": cell, "b": "x"}], "csv", noun="rows"))[1] == [written, "x"]
    assert _read(render(pa.table({"a": [cell], "b": ["x"]}), "csv", noun="rows"))[1][0] == written
    assert _read(focus.encode_csv(pa.table({"a": [cell, None], "b": [1, 2]})).decode())[1:] == [
        [written, "1"],
        ["", "2"],
    ]
    assert _read(as_csv.write(document).decode())[1][1] == written


def _tabulate(cell: str) -> ReportDocument:
    at = datetime(2026, 11, 23, tzinfo=UTC)
    columns = (ReportColumn("item", "item"), ReportColumn("n", "n", "number"))
    table = ReportTable(columns, ({"item": cell, "n": -1},))
    window = Window(at - timedelta(days=1), at)
    sections = (ReportSection("s", (table,)),)
    return ReportDocument("t", "finance", window, at, "all", (), (), (), sections)


@pytest.mark.parametrize("number", NUMBERS)
def test_a_number_is_a_number(number: Any) -> None:
    assert guard_cell(number) is number
    text = "" if number is None else str(number)
    assert _read(render([{"a": number, "b": 1}], "csv", noun="rows"))[1] == [text, "1"]


def test_a_figure_below_zero_is_a_number_in_the_focus_file() -> None:
    costs = pa.array([Decimal("-0.25000000")], pa.decimal128(28, 8))
    assert _read(focus.encode_csv(pa.table({"BilledCost": costs})).decode())[1] == ["-0.25000000"]


def test_a_time_is_a_time_and_a_span_below_zero_is_a_text() -> None:
    at = datetime(2026, 11, 23, tzinfo=UTC)
    row = {"at": at, "day": date(2026, 11, 23), "span": timedelta(days=-1)}
    assert _read(render([row], "csv", noun="rows"))[1] == [
        "2026-11-23T00:00:00+00:00",
        "2026-11-23",
        "'-1 day, 0:00:00",
    ]


def test_a_name_of_a_column_is_a_cell_too() -> None:
    assert _read(render([{"=1+1": 2}], "csv", noun="rows"))[0] == ["'=1+1"]


@given(TEXTS)
def test_without_the_guard_every_text_is_what_it_was(text: str) -> None:
    (written,) = _read(render([{"a": text}], "csv", noun="rows"))[1] or [""]
    assert written.removeprefix("'") == text
    assert not written.startswith(FORMULA_STARTS)


@given(st.lists(TEXTS, min_size=1, max_size=5))
def test_without_the_guard_a_focus_file_is_what_it_was(texts: list[str]) -> None:
    table = pa.table({"a": texts, "b": [1] * len(texts)})
    written = [row[0] for row in _read(focus.encode_csv(table).decode())[1:]]
    assert [cell.removeprefix("'") for cell in written] == texts
    assert not any(cell.startswith(FORMULA_STARTS) for cell in written)


def test_every_csv_is_written_with_guarded_cells() -> None:
    writers = re.compile(r"csv\.writer\(|DictWriter\(|\.write_csv\(|\.to_csv\(")
    found = {
        str(path.relative_to(ROOT))
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
        if writers.search(path.read_text(encoding="utf-8"))
    }
    assert found == {
        "fallow/csv_cells.py",
        "dashboards/reports/focus/__init__.py",  # `_guard` first, see the tests above
        "benchmarks/gates.py",  # figures of benchmarks
        "tools/fit.py",  # tables of the simulator, from public data, not for spreadsheets
    }
