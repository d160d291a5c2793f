"""Cells and figures of reports say what is unknown, and why, in the words of the pages."""

from decimal import Decimal
from typing import Any

import pytest

from dashboards import text
from dashboards.reports import amounts
from dashboards.reports.document import Kind, ReportColumn


@pytest.mark.parametrize(
    ("kind", "why", "value", "cell"),
    [
        ("usd", "", None, "unknown: no price"),
        ("usd", "not measured", None, "unknown: not measured"),
        ("usd", "", Decimal("-0.125"), "-$0.12"),
        ("number", "", None, "unknown"),
        ("percent", "not measured", None, "unknown: not measured"),
        ("percent", "not measured", 0.0, "0.0 %"),
        ("text", "", None, ""),
        ("moment", "", None, ""),
    ],
)
def test_cell_of_an_unknown_number_has_its_reason(
    kind: Kind, why: str, value: Any, cell: str
) -> None:
    assert amounts.format_cell(value, ReportColumn("n", "n", kind, why)) == cell


def test_reports_and_pages_have_one_word_for_a_missing_price() -> None:
    assert amounts.format_usd(None) == text.format_money(None) == amounts.format_cents(None)
    assert amounts.write_usd(None) == "unknown dollars (no price)"
