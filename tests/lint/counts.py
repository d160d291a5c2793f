"""Count the statements of each package for the table in docs/decisions.md."""

import ast

from tests.lint.names import PACKAGES, ROOT


def count_statements(package: str) -> int:
    """Return the number of statements in a package's Python files: nodes of `ast.stmt`."""
    texts = (path.read_text(encoding="utf-8") for path in (ROOT / package).rglob("*.py"))
    return sum(isinstance(node, ast.stmt) for text in texts for node in ast.walk(ast.parse(text)))


if __name__ == "__main__":
    for name in PACKAGES:
        print(f"{name}: {count_statements(name):,}")
