"""Rows on stdout in four shapes."""

import csv
import io
import json
from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from runtime.rendering.tables import format_value, render

AT = datetime(2026, 1, 2, 3, 4, tzinfo=UTC).replace(tzinfo=None)
ROWS = [
    {"team": "a|b", "gpu_hours": 1234.5, "usd": Decimal("9.10"), "at": AT},
    {"team": "x\x1b[2J", "gpu_hours": None, "usd": None, "at": None},
]


def test_json_names_its_schema_and_keeps_money_a_number_and_missing_null() -> None:
    document = json.loads(render(ROWS, "json", noun="spend", currency="USD"))
    assert document["schema"] == "fallow.spend/v1"
    assert document["currency"] == "USD"
    assert document["spend"][0]["usd"] == 9.1
    assert document["spend"][1]["gpu_hours"] is None


def test_csv_reads_back_as_it_was() -> None:
    text = render(ROWS, "csv", noun="spend")
    back = list(csv.DictReader(io.StringIO(text)))
    assert back[0]["team"] == "a|b"
    assert back[0]["at"] == "2026-01-02T03:04:00"
    assert back[1]["usd"] == ""


def test_a_table_aligns_numbers_right_and_shows_missing_as_a_dash() -> None:
    lines = render(ROWS, "table", noun="spend").splitlines()
    assert lines[0].split() == ["TEAM", "GPU_HOURS", "USD", "AT"]
    assert "1,234.50" in lines[1]
    assert len({line.index("1,234.50") + 8 for line in lines[1:2]} | {len("TEAM     GPU_HOURS")})
    assert "\x1b" not in lines[2]
    assert lines[2].split()[-3:] == ["-", "-", "-"]


def test_markdown_escapes_its_own_bars() -> None:
    lines = render(ROWS, "md", noun="spend").splitlines()
    assert lines[1] == "|---|--:|--:|---|"
    assert "a\\|b" in lines[2]


def test_an_arrow_table_is_rows_and_no_rows_are_said() -> None:
    table = pa.table({"n": [1, 2]})
    assert json.loads(render(table, "json", noun="rows"))["rows"] == [{"n": 1}, {"n": 2}]
    assert render([], "table", noun="rows") == "nothing\n"
    assert json.loads(render([], "json", noun="rows"))["rows"] == []
    assert render(pa.table({"n": pa.array([], pa.int64())}), "csv", noun="rows") == "n\n"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        (True, "yes"),
        (1234567.891, "1,234,567.89"),
        (Decimal("0.5"), "0.50"),
        (AT.replace(second=5), "2026-01-02 03:04:05"),
        (["a", None], "a, -"),
        ("bell\x07", "bell "),
    ],
)
def test_values_for_eyes(value: object, text: str) -> None:
    assert format_value(value) == text
