"""Hold the product's packages to code that something uses: vulture, and the list of exceptions.

`allowed_unused.csv` lists what a library or a test calls and no code of ours names, each with its
reason; a line that no longer excuses anything is an error as well. Plugins are used by their entry
points, and the fields of a record leave it whole, as JSON or as a table's row.

    python -m tests.lint.unused           check; exit code 1 where something is unused
"""

import ast
import csv
import re
import sys
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

from vulture import Vulture

ROOT = Path(__file__).resolve().parents[2]
TABLE = Path(__file__).with_name("allowed_unused.csv")
NAMED_IN = (("runtime/cli/commands.csv", "function"), ("actions/policy/keys.csv", "type"))
"""The tables and their columns by which code finds functions and types."""
PACKAGES = (
    "actions", "analyzers", "benchmarks", "capacity", "collectors", "dashboards", "fallow",
    "runtime", "simulator", "tools", "warehouse",
)  # fmt: skip
DECORATORS = [
    "@gate", "@field_validator", "@model_validator", "@field_serializer", "@model_serializer",
]  # fmt: skip
"""What these decorate is called by its registry or by pydantic."""
CONFIDENCE = 60  # per cent; vulture gives all that has a name but arguments and imports this much


class Unused(NamedTuple):
    """A name that nothing uses, and where it is bound."""

    path: str
    line: int
    kind: str
    name: str


class Allowed(NamedTuple):
    """Names in files, both as shell patterns, that may be unused, and why."""

    path: str
    name: str
    reason: str

    def covers(self, unused: Unused) -> bool:
        """Return whether this excuses an unused name."""
        return fnmatchcase(unused.path, self.path) and fnmatchcase(unused.name, self.name)


def list_unused(root: Path, packages: tuple[str, ...], entry_points: set[str]) -> list[Unused]:
    """Return what vulture reports of the packages, less plugins and fields of records."""
    vulture = Vulture(ignore_decorators=DECORATORS)
    paths = [path for package in packages for path in sorted((root / package).rglob("*.py"))]
    vulture.scavenge([str(path) for path in paths])
    items = []
    for item in vulture.get_unused_code(min_confidence=CONFIDENCE):
        path = Path(item.filename).resolve()
        fields = record_fields(path) if item.typ == "variable" else set()
        if item.name not in entry_points and (item.name, item.first_lineno) not in fields:
            where = path.relative_to(root).as_posix()
            items.append(Unused(where, item.first_lineno, item.typ, item.name))
    return items


def record_fields(path: Path) -> set[tuple[str, int]]:
    """Return the annotated attributes of a file's classes: each one's name and line."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {
        (statement.target.id, statement.lineno)
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        for statement in node.body
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name)
    }


def entry_points(pyproject: str) -> set[str]:
    """Return the names of the classes and functions that entry points load."""
    project = tomllib.loads(pyproject)["project"]
    groups = [project.get("scripts", {}), *project.get("entry-points", {}).values()]
    targets = [target for group in groups for target in group.values()]
    return {re.split(r"[:.]", target)[-1] for target in targets}


def check(unused: list[Unused], exceptions: list[Allowed]) -> Iterator[str]:
    """Yield a line for each unused name without an exception, and for each idle exception."""
    for item in unused:
        if not any(exception.covers(item) for exception in exceptions):
            yield f"{item.path}:{item.line}: unused {item.kind} {item.name!r}"
    for exception in exceptions:
        if not any(exception.covers(item) for item in unused):
            line = f"{exception.path},{exception.name}"
            yield f"{TABLE.name}: {line}: used or gone by now; remove this line"


def read_exceptions() -> list[Allowed]:
    """Return the rows of `allowed_unused.csv`."""
    with TABLE.open(encoding="utf-8", newline="") as file:
        return [Allowed(row["path"], row["name"], row["reason"]) for row in csv.DictReader(file)]


def main() -> int:
    """Check the packages, and print what is unused."""
    loaded = entry_points((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    for table, column in NAMED_IN:
        with (ROOT / table).open(encoding="utf-8", newline="") as file:
            loaded |= {row[column] for row in csv.DictReader(file)}
    lines = list(check(list_unused(ROOT, PACKAGES, loaded), read_exceptions()))
    for line in lines:
        print(line)
    if lines:
        print("delete what is unused, or give it a line with a reason in", TABLE.relative_to(ROOT))
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
