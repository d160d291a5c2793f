"""Print how large each package of the product is, and how its modules hang together.

    python -m tests.lint.size

Columns: lines and files of Python, lines of SQL, statements, arrows (pairs of rooms, a package or
a folder of one, where a module of the first imports one of the second), circles (groups of
modules that import each other, imports for the type checker included).
"""

import ast
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from tests.lint.names import PACKAGES, ROOT
from tests.lint.test_import_circles import find_modules, list_imports

HEADER = ("package", "lines", "files", "sql", "statements", "arrows", "circles")


class PackageSize(NamedTuple):
    """The size of one package."""

    lines: int
    files: int
    sql: int
    statements: int
    arrows: int
    circles: int


def count_lines(paths: list[Path]) -> int:
    """Return the lines of files."""
    return sum(path.read_bytes().count(b"\n") for path in paths)


def find_circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Return the groups of modules that reach each other (strongly connected, Tarjan 1972)."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    groups: list[list[str]] = []

    def visit(name: str) -> None:
        order[name] = low[name] = len(order)
        stack.append(name)
        for other in graph[name]:
            if other not in order:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], order[other])
        if low[name] == order[name]:
            group = stack[stack.index(name) :]
            del stack[stack.index(name) :]
            if len(group) > 1:
                groups.append(sorted(group))

    for name in graph:
        if name not in order:
            visit(name)
    return groups


def measure() -> tuple[dict[str, PackageSize], list[list[str]]]:
    """Return the size of each package, and the circles."""
    modules = find_modules()
    trees = {name: ast.parse(text) for name, text in modules.items()}
    graph = {
        name: set(list_imports(tree, modules)) & modules.keys() - {name}
        for name, tree in trees.items()
    }
    circles = find_circles(graph)
    folders = {
        name: name if (ROOT / Path(*name.split("."))).is_dir() else name.rpartition(".")[0]
        for name in modules
    }
    arrows = {
        (folders[name], folders[other])
        for name, others in graph.items()
        for other in others
        if folders[name] != folders[other]
    }
    per_package = Counter(source.partition(".")[0] for source, _ in arrows)
    statements: Counter[str] = Counter()
    for name, tree in trees.items():
        statements[name.partition(".")[0]] += sum(isinstance(n, ast.stmt) for n in ast.walk(tree))
    in_circles = Counter(group[0].partition(".")[0] for group in circles)
    sizes = {}
    for package in PACKAGES:
        files = sorted((ROOT / package).rglob("*.py"))
        sizes[package] = PackageSize(
            count_lines(files),
            len(files),
            count_lines(sorted((ROOT / package).rglob("*.sql"))),
            statements[package],
            per_package[package],
            in_circles[package],
        )
    return sizes, circles


def show(sizes: dict[str, PackageSize], circles: list[list[str]]) -> str:
    """Return the table, with a total, and each circle in a line."""
    total = PackageSize(*(sum(column) for column in zip(*sizes.values(), strict=True)))
    rows = [HEADER, *((name, *size) for name, size in sizes.items()), ("total", *total)]
    lines = [f"{row[0]:<12}" + "".join(f"{cell:>11}" for cell in row[1:]) for row in rows]
    return "\n".join([*lines, *(f"circle: {', '.join(group)}" for group in circles)])


if __name__ == "__main__":
    print(show(*measure()))
