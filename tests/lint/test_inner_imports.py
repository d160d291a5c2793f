"""Imports stand at a module's top; those inside functions are few, each with its reason."""

from pathlib import Path

from tests.lint.names import PACKAGES, ROOT

MOST = 60
"""The command line's own modules, and extras that most commands do not load."""


def test_few_modules_are_imported_inside_functions() -> None:
    marked = [
        f"{path.relative_to(ROOT)}:{number}"
        for package in PACKAGES
        for path in sorted(Path(ROOT / package).rglob("*.py"))
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if "noqa: PLC0415" in line
    ]
    assert len(marked) <= MOST, marked
