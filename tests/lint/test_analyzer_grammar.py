"""Every analyzer has the same files, its rows are typed where they are read, and it stands alone.

CONTRIBUTING.md ("To add an analyzer") describes the grammar.
"""

import ast
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lint.names import PACKAGES, ROOT

ANALYZERS = ROOT / "analyzers"
ENTRY_POINTS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
    "entry-points"
]["fallow.analyzers"]
FOLDERS = sorted(path.split(".")[1].partition(":")[0] for path in ENTRY_POINTS.values())
FILES = ("__init__.py", "analyzer.py", "findings.py", "rows.py")
"""`rows` may be a package where one file would be long."""
EDGE = {"queries.py", "rows.py"}
"""The modules above the folders that may read rows as dictionaries."""
UNTYPED = re.compile(r"\.to_pylist\(|\brow\[\"")
MOST_FOLDERS = 2
"""Of this many folders may have a `.sql` file of one name."""


TABLES = {
    path.relative_to(ANALYZERS).with_suffix("").as_posix()
    for kind in ("sql", "csv")
    for path in ANALYZERS.glob(f"*/**/*.{kind}")
}
"""The queries and tables of folders as code names them."""


def missing_files(folder: str) -> list[str]:
    place = ANALYZERS / folder
    package = (place / "rows").is_dir()
    return [n for n in FILES if not (place / n).exists() and not (n == "rows.py" and package)]


def is_edge(path: Path) -> bool:
    inside = path.relative_to(ANALYZERS).parts
    if len(inside) == 1:
        return inside[0] in EDGE
    return inside[1] in {"rows.py", "rows"}


def untyped_rows(paths: Iterator[Path]) -> list[str]:
    return [
        f"{path.relative_to(ROOT)}:{number}"
        for path in sorted(paths)
        if not is_edge(path)
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if UNTYPED.search(line)
    ]


def imported_modules(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{name.name}" for name in node.names)
        elif isinstance(node, ast.Import):
            yield from (name.name for name in node.names)


def named_files(tree: ast.Module) -> Iterator[str]:
    """Yield the queries and tables of folders that strings name, such as `spot/interruptions`."""
    strings = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant))
    yield from (value for value in strings if isinstance(value, str) and value in TABLES)


def of_other_folders(path: Path) -> list[str]:
    """Return what a module imports or reads of the folders of other analyzers."""
    others = {*FOLDERS} - {path.relative_to(ANALYZERS).parts[0]}
    tree = ast.parse(path.read_text(encoding="utf-8"))
    modules = {m for m in imported_modules(tree) if m.startswith("analyzers.")}
    return [
        *sorted(m for m in modules if m.split(".")[1] in others),
        *sorted(n for n in named_files(tree) if n.split("/")[0] in others),
    ]


def test_every_folder_is_that_of_an_analyzer() -> None:
    files = (path for path in ANALYZERS.glob("*/*.*") if path.parent.name != "__pycache__")
    assert sorted({path.parent.name for path in files}) == FOLDERS


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_folder_has_the_fixed_files_and_types_its_rows_where_it_reads_them(folder: str) -> None:
    missing = missing_files(folder)
    untyped = untyped_rows((ANALYZERS / folder).rglob("*.py"))
    assert (missing, untyped) == ([], [])


def test_the_shared_modules_type_their_rows_where_they_read_them() -> None:
    assert untyped_rows(ANALYZERS.glob("*.py")) == []


@pytest.mark.parametrize("name", sorted(ENTRY_POINTS))
def test_an_analyzer_is_the_class_of_its_folder(name: str) -> None:
    module = ENTRY_POINTS[name].partition(":")[0]
    assert module == f"analyzers.{name}.analyzer"


def test_no_analyzer_imports_or_reads_another() -> None:
    strangers = {
        str(path.relative_to(ROOT)): others
        for path in sorted(ANALYZERS.rglob("*.py"))
        if (others := of_other_folders(path))
    }
    assert strangers == {}


def test_a_query_is_named_after_what_it_returns() -> None:
    places = defaultdict(list)
    for path in sorted(ANALYZERS.rglob("*.sql")):
        places[path.name].append(str(path.parent.relative_to(ANALYZERS)))
    assert {name: f for name, f in places.items() if len(f) > MOST_FOLDERS} == {}


NAMED_BY = {
    "fragmentation": {"runtime/operations/analysis/pending.py"},
    "idle": {
        "runtime/operations/accounting/idle_hours.py",
        "runtime/experiments/simulation/oracle.py",
    },
    "reliability": {
        "runtime/cli/incidents.py", "runtime/operations/accounting/pipeline.py",
        "runtime/operations/analysis/incidents.py", "runtime/service/metrics.py",
    },
    "services": {"runtime/operations/analysis/analyzer_runs.py"},
    "stalled": {"runtime/operations/ingestion/collection.py"},
}  # fmt: skip
"""The product's modules that import an analyzer by its name; all else meets it by its entry point.

A new analyzer is its folder, its tests and one entry point: no row here.
"""


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_new_analyzer_touches_its_folder_and_one_entry_point(folder: str) -> None:
    imported = re.compile(rf"^\s*(?:from|import) analyzers(?:\.| import ){folder}\b", re.MULTILINE)
    named_by = {
        path.relative_to(ROOT).as_posix()
        for package in {*PACKAGES} - {"benchmarks"}
        for path in (ROOT / package).rglob("*.py")
        if ANALYZERS / folder not in path.parents
        and imported.search(path.read_text(encoding="utf-8"))
    }
    assert named_by == NAMED_BY.get(folder, set())
    assert FOLDERS.count(folder) == 1
