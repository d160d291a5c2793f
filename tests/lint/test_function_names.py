"""Functions of modules begin with a verb of `verbs.csv`: what they do, in the imperative.

Methods are not judged: many carry out a protocol of a library or of a plugin.
"""

import ast
import csv
from collections.abc import Iterator
from pathlib import Path

from tests.lint.names import PACKAGES, ROOT

TABLE = Path(__file__).parent / "verbs.csv"
VERBS = frozenset(row["verb"] for row in csv.DictReader(TABLE.read_text("utf-8").splitlines()))
COMMANDS = "runtime/cli/"
"""Functions here are named as people type the commands."""


def list_functions(source: str) -> Iterator[str]:
    """Yield the names of a module's functions."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name


def find_nouns(source: str) -> list[str]:
    """Return the functions of a module whose first word is no verb of the table."""
    return [n for n in list_functions(source) if n.strip("_").split("_")[0] not in VERBS]


def test_every_function_of_a_module_begins_with_a_verb() -> None:
    paths = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    assert len(paths) > 500
    nouns = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in paths
        if not str(path.relative_to(ROOT)).startswith(COMMANDS)
        for name in find_nouns(path.read_text(encoding="utf-8"))
    ]
    assert nouns == []


def test_a_noun_and_a_participle_are_found() -> None:
    source = "def totals(): ...\ndef found_rows(): ...\ndef read_totals(): ...\n"
    assert find_nouns(source) == ["totals", "found_rows"]
