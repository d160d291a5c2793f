"""A formula in a table is inert; a negative number is a number."""

import csv
import io

from tests.field.site import Site, build_node

SQL = "select -1.5 as change, '=HYPERLINK(1)' as label, '-2+3' as text"


def test_formulas_are_inert_and_numbers_are_numbers(site: Site) -> None:
    site.import_objects(build_node("a"))
    answer = site.run("warehouse", "query", SQL, "-o", "csv")
    assert answer.code == 0, answer.err
    row = next(csv.DictReader(io.StringIO(answer.out)))
    assert row["change"] == "-1.5"
    assert not row["label"].startswith("=")
    assert not row["text"].startswith("-")
