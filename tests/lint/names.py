"""Hold names to the vocabulary: identifiers, file names and SQL aliases of the product's packages.

`banned_words.csv` lists words that no name may be (`name`) or contain (`part`), with what to say
instead. `allowed_names.csv` lists names that may, each with its reason. `remaining_names.csv` has
how many of the others each package may still have: a number that only goes down. Tests are held
to the words that no name may contain.

    python -m tests.lint.names           check; exit code 1 if a package has more than it may
    python -m tests.lint.names --list    print every name, the most frequent first
"""

import ast
import csv
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
TABLES = Path(__file__).parent
PACKAGES = (
    "actions", "analyzers", "benchmarks", "capacity", "collectors", "dashboards", "fallow",
    "runtime", "simulator", "tools", "warehouse",
)  # fmt: skip
TESTS = "tests"
_WORDS = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])")
_ALIAS = re.compile(
    r"\b(?:AS|as)\s+([a-z_][a-z0-9_]*)"
    r"|\b([a-z_][a-z0-9_]*)\s+(?:AS|as)\s+(?:(?:NOT )?MATERIALIZED\s+)?\("
)


class Name(NamedTuple):
    """A name in a file, and the line on which it is bound."""

    path: str
    line: int
    text: str


class Banned(NamedTuple):
    """Words that no name may be, and words that no name may contain."""

    names: dict[str, str]
    parts: dict[str, str]


def banned_words() -> Banned:
    """Return the table of banned words: the word, and what to say instead."""
    names: dict[str, str] = {}
    parts: dict[str, str] = {}
    for row in _rows("banned_words"):
        (parts if row["scope"] == "part" else names)[row["word"]] = row["instead"]
    return Banned(names, parts)


def instead(name: str, banned: Banned) -> str | None:
    """Return what to say instead of a name; None = the name may stay."""
    bare = name.strip("_").lower()
    words = [word.lower() for word in _WORDS.findall(name)]
    return banned.names.get(bare) or next(
        (banned.parts[w] for w in words if w in banned.parts), None
    )


def names(package: str) -> Iterator[Name]:
    """Yield every name that files of a package bind, and the names of the files themselves."""
    for path in sorted((ROOT / package).rglob("*")):
        where = str(path.relative_to(ROOT))
        if path.suffix not in {".py", ".sql", ".csv"} or "__pycache__" in where:
            continue
        yield Name(where, 1, path.stem)
        if path.suffix == ".py":
            yield from _of_python(where, path.read_text(encoding="utf-8"))
        elif path.suffix == ".sql":
            yield from _of_sql(where, path.read_text(encoding="utf-8"))


def _of_python(where: str, text: str) -> Iterator[Name]:
    for node in ast.walk(ast.parse(text)):
        match node:
            case (
                ast.FunctionDef(name=name)
                | ast.AsyncFunctionDef(name=name)
                | ast.ClassDef(name=name)
            ):
                yield Name(where, node.lineno, name)
            case ast.arg(arg=name):
                yield Name(where, node.lineno, name)
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield Name(where, node.lineno, name)


def _of_sql(where: str, text: str) -> Iterator[Name]:
    code = re.sub(r"--[^\n]*", "", text)
    for match in _ALIAS.finditer(code):
        name = match.group(1) or match.group(2)
        yield Name(where, code.count("\n", 0, match.start()) + 1, name)


def violations(package: str) -> list[tuple[Name, str]]:
    """Return the names of a package that may not stay, with what to say instead."""
    banned = banned_words()
    allowed = {row["name"] for row in _rows("allowed_names")}
    if package == TESTS:  # a local result of a test may be `found`
        banned = Banned({}, banned.parts)
    return [
        (name, say)
        for name in names(package)
        if name.text not in allowed and (say := instead(name.text, banned)) is not None
    ]


def main(arguments: list[str]) -> int:
    """Print what is wrong and return the exit code."""
    most = {row["package"]: int(row["count"]) for row in _rows("remaining_names")}
    failed = False
    for package in (*PACKAGES, TESTS):
        wrong = violations(package)
        if "--list" in arguments:
            for (text, say), count in Counter((n.text, s) for n, s in wrong).most_common():
                print(f"{package}: {count} x {text}: say {say}")
        if len(wrong) > most.get(package, 0):
            failed = True
            print(
                f"{package}/ has {len(wrong)} names that docs/glossary.md does not know, and may "
                f"have {most.get(package, 0)}: python -m tests.lint.names --list"
            )
        elif len(wrong) < most.get(package, 0):
            print(
                f"{package}/ has {len(wrong)} names that docs/glossary.md does not know: lower "
                f"the {most[package]} of tests/lint/remaining_names.csv"
            )
    return int(failed)


def _rows(name: str) -> list[dict[str, str]]:
    with (TABLES / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return [*csv.DictReader(file)]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
