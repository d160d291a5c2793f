"""Every test that docs/reliability.md names exists, and says itself whether it is long."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
NAMED = re.compile(r"`(tests/[a-z_/]+\.py)::(test_[a-z0-9_]+)`( \(long\))?")


def test_the_tests_that_it_names_exist_and_are_long_where_it_says_so() -> None:
    named = NAMED.findall(PAGE)
    assert len(named) > 30
    for path, name, is_long in named:
        text = (ROOT / path).read_text(encoding="utf-8")
        assert f"def {name}(" in text, f"{path}::{name}"
        before = text.split(f"def {name}(")[0].rpartition("\n\n\n")[2]
        # The whole test: of one that has a long case besides, the others are in every run.
        marked = "@pytest.mark.long\n" in before or "pytestmark = pytest.mark.long" in text
        assert marked == bool(is_long), f"{path}::{name}"


def test_every_fault_names_a_test() -> None:
    faults = PAGE.partition("## Whether acting works")[0]
    rows = [line for line in faults.splitlines() if line.startswith("| ") and "::" not in line]
    assert [row for row in rows if not row.startswith("| fault")] == []
