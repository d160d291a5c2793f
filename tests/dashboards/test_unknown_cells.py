"""A table's percentage that is not known is unknown: a bar of null would be an empty cell."""

import json

import pytest
from streamlit.testing.v1 import AppTest

TABLE = """
from dashboards import page
columns = {"name": page.name("team"), "busy": page.configure_percent("busy", "hours with work")}
rows = [{"name": "a", "busy": 12.5}, {"name": "b", "busy": VALUE}]
page.show_table(rows, columns, table_name="Teams")
"""


@pytest.mark.parametrize(("value", "kind"), [("0.0", "progress"), ("None", "number")])
def test_unknown_percentage_has_no_bar(value: str, kind: str) -> None:
    page = AppTest.from_string(TABLE.replace("VALUE", value), default_timeout=120).run()
    assert not page.exception
    (table,) = page.dataframe
    assert table.proto.placeholder == "unknown"
    busy = json.loads(table.proto.columns)["busy"]
    assert (busy["type_config"]["type"], busy["label"]) == (kind, "busy")
    assert busy["type_config"]["format"] == "%.1f%%"


TIMES = """
from datetime import datetime
from dashboards import page
columns = {"name": page.name("team"), "kept": page.configure_time("kept until")}
rows = [{"name": "a", "kept": VALUE}, {"name": "b", "kept": None}]
page.show_table(rows, columns, table_name="Teams")
"""


@pytest.mark.parametrize(
    ("value", "cells"), [("None", ["", ""]), ("datetime(2026, 11, 16)", ["2026-11-16 00:00", ""])]
)
def test_a_time_that_did_not_happen_is_empty_also_where_none_of_the_rows_has_one(
    value: str, cells: list[str]
) -> None:
    page = AppTest.from_string(TIMES.replace("VALUE", value), default_timeout=120).run()
    assert not page.exception
    assert list(page.dataframe[0].value["kept"]) == cells
