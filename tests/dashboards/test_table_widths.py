"""Tables fit on a screen of 1,280 pixels: dollars stay, texts give room, the rest is in the CSV."""

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from dashboards import page, table_widths

LONG = "team-genai/PyTorchJob/pretrain-with-a-long-name"
COLUMNS: dict[str, Any] = {
    "name": page.configure_workload(),
    "why": page.name("why", "large"),
    **{f"n{number}": page.configure_number(f"a column {number}") for number in range(9)},
    "usd": page.configure_usd("USD", cents=True),
}


def build_rows(why: str, usd: Decimal | None = Decimal("12345.67")) -> pa.Table:
    numbers = {f"n{number}": [1234.5] for number in range(9)}
    return pa.table({
        "name": [LONG], "why": [why], **numbers, "usd": pa.array([usd], pa.decimal128(18, 8)),
    })  # fmt: skip


def measure(fitting: dict[str, Any], rows: pa.Table) -> int:
    return sum(
        column["width"] if table_widths.is_text(column) else table_widths._measure(column, rows[n])
        for n, column in fitting.items()
    )


def test_what_does_not_fit_is_left_out_and_dollars_stay() -> None:
    rows = build_rows("it has been idle for six days and nobody asked for it " * 3)
    fitting = table_widths.fit_columns(COLUMNS, rows)
    assert [*fitting][:2] == ["name", "why"]
    assert "usd" in fitting
    assert "n8" not in fitting
    assert measure(fitting, rows) <= table_widths.PAGE_PX


def test_a_text_has_the_room_that_is_left_and_no_more_than_it_needs() -> None:
    columns = {name: COLUMNS[name] for name in ("name", "why", "usd")}
    short = table_widths.fit_columns(columns, build_rows("idle"))
    assert short["why"]["width"] < 100
    assert short["name"]["width"] > 300, "a name that is cut takes the room that is left"
    rows = build_rows("word " * 200)
    long = table_widths.fit_columns(columns, rows)
    assert sum(long[name]["width"] for name in ("name", "why")) <= table_widths.PAGE_PX
    assert long["why"]["width"] > 400


def test_a_long_text_is_whole_in_up_to_three_lines_and_leaves_room_for_others() -> None:
    columns = {name: COLUMNS[name] for name in ("name", "n1", "why", "n2", "usd")}
    heights = []
    for words in (4, 14, 28, 200):
        rows = build_rows("word " * words)
        fitting = table_widths.fit_columns(columns, rows)
        assert {"n1", "why", "usd"} <= {*fitting}
        heights.append(table_widths.choose_row_height({"why": fitting["why"]}, rows))
    assert heights == [35, 64, 71, 71]


def test_unknown_dollars_have_no_claim() -> None:
    known, unknown = (
        table_widths.fit_columns(COLUMNS, build_rows("word " * 60, usd), 640)
        for usd in (Decimal(1), None)
    )
    assert "usd" in known
    assert "usd" not in unknown


@pytest.mark.parametrize("room", [300, 600, 908])
def test_less_room_has_fewer_columns(room: int) -> None:
    rows = build_rows("word " * 60)
    fitting = table_widths.fit_columns(COLUMNS, rows, room)
    assert {"name", "usd"} <= {*fitting}
    assert measure(fitting, rows) <= max(room, 250 + 120)
