"""No module imports itself by way of others: in functions and for the type checker neither."""

import ast
from collections.abc import Iterator
from graphlib import TopologicalSorter

from tests.lint.names import PACKAGES, ROOT


def find_modules() -> dict[str, str]:
    """Return the source of every module of the product by its name."""
    return {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): (
            path.read_text(encoding="utf-8")
        )
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
    }


def list_imports(node: ast.AST, modules: dict[str, str]) -> Iterator[str]:
    """Yield the modules that a tree imports."""
    for child in ast.iter_child_nodes(node):
        match child:
            case ast.Import(names=names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module=str(module), names=names):
                inner = (f"{module}.{alias.name}" for alias in names)
                yield from (name if name in modules else module for name in inner)
            case _:
                yield from list_imports(child, modules)


def test_no_import_circle_is_left() -> None:
    modules = find_modules()
    graph = {
        name: {found for found in list_imports(ast.parse(text), modules) if found != name}
        for name, text in modules.items()
    }
    TopologicalSorter(graph).prepare()  # raises CycleError with the modules of a circle


def test_a_circle_would_be_found() -> None:
    modules = {"a": "def f():\n    from b import x\n", "b": "import a\n"}
    graph = {n: set(list_imports(ast.parse(text), modules)) for n, text in modules.items()}
    assert graph == {"a": {"b"}, "b": {"a"}}
