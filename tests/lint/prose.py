"""Hold prose to the vocabulary: comments, docstrings, messages, tables and pages.

`banned_prose.csv` lists patterns of words with what to write instead; `allowed_prose.csv` lists the
files that may have a word, each with the reason: names that were stored before, and what other
products call so.

    python -m tests.lint.prose           check; exit code 1 where a banned word stands
"""

import ast
import csv
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.lint.names import PACKAGES, ROOT

TABLES = Path(__file__).parent
FOLDERS = (*PACKAGES, ".ci", ".github", "deploy", "docs", "policies")
PAGES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "Makefile")
SUFFIXES = {".py", ".sql", ".csv", ".md", ".yaml", ".yml", ""}
RENAMED = re.compile(r"^### Renamed$.*?(?=^### )", re.DOTALL | re.MULTILINE)
"""The table old -> new of CHANGELOG.md names what was."""


class Fault(NamedTuple):
    """A banned word in a file, and what to write instead."""

    path: str
    line: int
    word: str
    instead: str


def banned_prose() -> dict[re.Pattern[str], str]:
    """Return the patterns of banned words, each with what to write instead."""
    return {
        re.compile(rf"(?<![\w`/.\-])(?:{row['pattern']})(?![\w`\-])", re.IGNORECASE): row["instead"]
        for row in _rows("banned_prose")
    }


def list_files() -> list[Path]:
    """Return the files of the product whose prose is read."""
    found = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*"))]
    return [
        path
        for path in (*(ROOT / page for page in PAGES), *found)
        if path.suffix in SUFFIXES and path.is_file() and "__pycache__" not in path.parts
    ]


def read_sentences(path: Path, text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines of prose in a file with their numbers: of code, comments and texts."""
    if path.suffix == ".py":
        yield from _of_python(text)
    elif path.suffix == ".sql":
        for number, line in enumerate(text.splitlines(), 1):
            _, dashes, comment = line.partition("--")
            if dashes:
                yield number, comment
    else:
        if path.name == "CHANGELOG.md":
            text = RENAMED.sub(lambda match: "\n" * match.group().count("\n"), text)
        yield from enumerate(text.splitlines(), 1)


def _of_python(text: str) -> Iterator[tuple[int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    for node in ast.walk(ast.parse(text)):
        # A text of one word is a key or a column, which the lint of names reads where it is bound.
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            for at, line in enumerate(node.value.splitlines()):
                yield node.lineno + at, line


def find_faults(path: str, sentences: Iterator[tuple[int, str]]) -> Iterator[Fault]:
    """Yield the banned words of a file that it may not have."""
    allowed = {row["word"] for row in _rows("allowed_prose") if path.startswith(row["path"])}
    patterns = banned_prose()
    for line, sentence in sentences:
        for pattern, instead in patterns.items():
            for match in pattern.finditer(sentence):
                if match.group().lower() not in allowed:
                    yield Fault(path, line, match.group(), instead)


def main() -> int:
    """Print the banned words and return the exit code."""
    faults = [
        fault
        for path in list_files()
        for fault in find_faults(
            str(path.relative_to(ROOT)), read_sentences(path, path.read_text(encoding="utf-8"))
        )
    ]
    for fault in faults:
        print(f"{fault.path}:{fault.line}: {fault.word!r}: write {fault.instead}")
    return int(bool(faults))


def _rows(name: str) -> list[dict[str, str]]:
    with (TABLES / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return [*csv.DictReader(file)]


if __name__ == "__main__":
    sys.exit(main())
