"""The table of the kinds of findings has those that the documentation names."""

import re
from pathlib import Path

from tests.runtime.demo_kinds import read_demo_kinds

DOCS = Path(__file__).parents[2] / "docs" / "analyzers"


def test_each_documented_kind_is_planted_or_says_why_not() -> None:
    rows = {(row.analyzer, row.kind) for row in read_demo_kinds()}
    assert len(rows) == len(read_demo_kinds())
    documented = set()
    for page in sorted(DOCS.glob("*.md")):
        tables = re.findall(
            r"\| (?:kind|finding)[^\n]*\n\|[-| :]+\n((?:\|[^\n]*\n)+)", page.read_text()
        )
        for kind in re.findall(r"^\| `([a-z0-9_]+)`", tables[0] if tables else "", re.MULTILINE):
            documented.add((page.stem, kind))
    assert len(documented) > 30
    assert documented - rows == set()
