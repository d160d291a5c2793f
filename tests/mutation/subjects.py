"""What is mutated and by which tests it is held: the tables beside this file."""

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

TABLES = Path(__file__).parent


class Subject(NamedTuple):
    """Source files, and the tests that hold them, as patterns."""

    name: str
    sources: tuple[str, ...]
    tests: tuple[str, ...]

    def test_files(self, root: Path) -> list[str]:
        """Return the test files and folders that there are, relative to the root."""
        return sorted({str(p.relative_to(root)) for name in self.tests for p in root.glob(name)})


def subjects() -> list[Subject]:
    """Return the rows of `subjects.csv`."""
    return [
        Subject(row["subject"], tuple(row["sources"].split()), tuple(row["tests"].split()))
        for row in _rows("subjects")
    ]


def sources(root: Path, subject: Subject) -> list[str]:
    """Return the source files of a subject, relative to the root."""
    paths = {path for pattern in subject.sources for path in root.glob(pattern)}
    return sorted(path.relative_to(root).as_posix() for path in paths)


def equivalents() -> set[tuple[str, str, str, str]]:
    """Return mutants that no test can kill: path, the line's text, old and new."""
    return {(row["path"], row["line"], row["old"], row["new"]) for row in _rows("equivalent")}


def _rows(name: str) -> Iterator[dict[str, str]]:
    with (TABLES / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file)
