"""Marks that follow from what a test reaches: `server` and `browser` are never written by hand.

`slow` is, or its file is one of `slow_files.csv`: those that take three seconds of a processor.

A test needs a server when its file, or the file of a fixture that it uses, imports one (or starts
a process), directly or through other files of tests/. That is more than it must be, never less:
`make test-fast` leaves out a few tests that could run. `--no-servers` holds what is left to it:
there, binding a socket or starting a process fails the test.
"""

import ast
import csv
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
BROWSER = ("playwright",)
SERVER = (
    "aiohttp.web", "http.server", "moto.server", "multiprocessing", "runtime.service.child",
    "runtime.service.dashboard_process", "simulator.exporters.server", "simulator.kube.server",
    "socket", "socketserver", "subprocess", "tests.servers",
)  # fmt: skip
"""Modules that start one, or that whoever imports them wants for it."""
KUBE = frozenset({"kube-apiserver", "kube-controller-manager"})
KUBE_FIXTURES = frozenset({"control_plane", "real_server", "real_site"})
"""Parameters and fixtures of tests that a real API server answers."""
SHARED_FIXTURES = ROOT / "tests" / "conftest.py"
SERVER_FIXTURES = frozenset({"database_server", "prometheus_with_history"})
"""Those of the topmost conftest.py: every test could use one, so its imports say nothing."""


def marks(path: Path, fixtures: Iterable[tuple[str, Path]]) -> Iterator[str]:
    """Yield the marks of a test in a file that uses fixtures, each with the file it is in."""
    named = list(fixtures)
    files = {path, *(file for _, file in named if file != SHARED_FIXTURES)}
    reached = set().union(*(reach(file) for file in files))
    if "browser" in reached:
        yield "browser"
    if "server" in reached or SERVER_FIXTURES & {name for name, _ in named}:
        yield "server"


@cache
def reach(path: Path) -> frozenset[str]:
    """Return what a file of tests/ imports, over all files of tests/ that it imports."""
    needs: set[str] = set()
    seen: set[Path] = set()
    waiting = [path]
    while waiting:
        file = waiting.pop()
        if file in seen or not file.is_relative_to(ROOT) or not file.exists():
            continue
        seen.add(file)
        modules = _imports(file)
        needs |= {"browser"} if any(_within(module, BROWSER) for module in modules) else set()
        needs |= {"server"} if any(_within(module, SERVER) for module in modules) else set()
        waiting += [
            ROOT.joinpath(*module.split(".")).with_suffix(".py")
            for module in modules
            if module.startswith("tests.")
        ]
    return frozenset(needs)


@cache
def _imports(file: Path) -> set[str]:
    return imported_modules(file.read_text(encoding="utf-8"))


def imported_modules(text: str) -> set[str]:
    """Return the full names of what a file imports, inside functions too; some are no modules."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


def _within(module: str, packages: tuple[str, ...]) -> bool:
    return any(module == package or module.startswith(f"{package}.") for package in packages)


@cache
def read_slow_files() -> dict[str, float]:
    """Return the files of tests that take three seconds of a processor or more, and how many."""
    with (ROOT / "tests" / "slow_files.csv").open(encoding="utf-8") as table:
        return {row["path"]: float(row["cpu_s"]) for row in csv.DictReader(table)}


def mark_items(items: list[pytest.Item]) -> None:
    """Give each test the marks of what it reaches, and of its file's time."""
    slow = read_slow_files()
    for item in items:
        if str(item.path.relative_to(ROOT)) in slow:
            item.add_marker("slow")
        for mark in marks(item.path, _fixtures(item)):
            item.add_marker(mark)


def wants_kube(item: pytest.Item) -> bool:
    """Return whether a test is played on a real API server."""
    values = getattr(getattr(item, "callspec", None), "params", {}).values()
    backends = {value for value in values if isinstance(value, str)} & {*KUBE, "stand-in"}
    if backends:
        return backends != {"stand-in"}
    return not KUBE_FIXTURES.isdisjoint(getattr(item, "fixturenames", ()))


def _fixtures(item: pytest.Item) -> Iterator[tuple[str, Path]]:
    used = getattr(item, "_fixtureinfo", None)
    for name, definitions in (used.name2fixturedefs if used else {}).items():
        yield name, Path(definitions[-1].func.__code__.co_filename)


class _Watch:
    """Whether a test runs now that may start nothing; an audit hook can never be taken out."""

    active = False
    installed = False


@contextmanager
def nothing_started() -> Iterator[None]:
    """Let whoever binds a socket or starts a process within this fail."""
    if not _Watch.installed:
        sys.addaudithook(_refuse)
        _Watch.installed = True
    before, _Watch.active = _Watch.active, True
    try:
        yield
    finally:
        _Watch.active = before


def _refuse(event: str, arguments: tuple[object, ...]) -> None:
    if _Watch.active and event in ("socket.bind", "subprocess.Popen", "os.posix_spawn"):
        message = f"a test of make test-fast starts a server or a process: {event} {arguments}"
        raise AssertionError(message)
