"""Which tests reach which code: a pytest plugin that `python -m tests.mutation` loads.

`--reach-of FILES --reach-to FILE` writes what each test reaches: lines of Python by coverage.py,
SQL files by the statements that the engine receives. `--reach-order FILE` runs the tests that the
file names, one a line, in its order, and no others.
"""

import json
from collections.abc import Generator, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import coverage
import duckdb
import pytest

SHARED = "shared:"
"""Before a test file's name: a fixture reached the code that several tests of the file use."""


class Reach(NamedTuple):
    """What the tests of a subject reach."""

    seconds: dict[str, float]  # of each test, by its id
    lines: dict[str, dict[int, list[str]]]  # of Python: ids, or SHARED and a test file
    files: dict[str, list[str]]  # of SQL: the same

    @classmethod
    def load(cls, path: Path) -> "Reach":
        """Return what a run with `--reach-to` wrote."""
        stored = json.loads(path.read_text(encoding="utf-8"))
        lines = {
            name: {int(line): contexts for line, contexts in by_line.items()}
            for name, by_line in stored["lines"].items()
        }
        return cls(stored["seconds"], lines, stored["files"])

    def order(self, path: str, lines: range) -> list[str]:
        """Return the tests worth running for a change of some lines, those that reach them first.

        After them come the other tests of their files, which may read what a cache kept. Where no
        test reaches the lines (a constant that an import reads, or code that runs in another
        process) come the tests that reach the file, and then all the others.
        """
        by_line = self.lines.get(path, {})
        exact = set(self.files.get(path, ()))
        exact.update(*(by_line.get(line, ()) for line in lines))
        first = self._tests(exact)
        if first:
            names = {_file(test) for test in first}
            rest = [test for test in self.seconds if _file(test) in names]
        else:
            first = self._tests(context for contexts in by_line.values() for context in contexts)
            rest = list(self.seconds)
        return [*self._sort(first), *self._sort(set(rest) - first)]

    def _tests(self, contexts: Iterable[str]) -> set[str]:
        tests: set[str] = set()
        for context in contexts:
            if context.startswith(SHARED):
                name = context.removeprefix(SHARED)
                tests |= {test for test in self.seconds if name in {"", _file(test)}}
            elif context in self.seconds:
                tests.add(context)
        return tests

    def _sort(self, tests: set[str]) -> list[str]:
        """Put quick files before slow ones, with the tests of a file together."""
        totals: dict[str, float] = {}
        for test in tests:
            totals[_file(test)] = totals.get(_file(test), 0.0) + self.seconds[test]
        return sorted(tests, key=lambda t: (totals[_file(t)], _file(t), self.seconds[t], t))


def _file(test: str) -> str:
    return test.partition("::")[0]


class Recorder:
    """Record which test reaches which of the sources."""

    def __init__(self, root: Path, sources: list[str], output: Path) -> None:
        self.root, self.sources, self.output = root, sources, output
        self.context = ""
        self.seconds: dict[str, float] = {}
        self.files: dict[str, set[str]] = {}
        self.texts = {
            name: _longest_lines((root / name).read_text(encoding="utf-8"))
            for name in sources
            if name.endswith(".sql")
        }
        python = [str(root / name) for name in sources if name.endswith(".py")]
        self.coverage = coverage.Coverage(data_file=None, config_file=False, include=python)
        self.coverage.set_option("run:disable_warnings", ["no-data-collected"])
        self.coverage.start()
        connect = duckdb.connect

        def connect_here(*args: Any, **named: Any) -> duckdb.DuckDBPyConnection:
            # `FROM rows` is a variable of the caller, who is one frame further away here.
            connection = connect(*args, **named)
            connection.execute("SET python_scan_all_frames = true")
            return connection

        duckdb.connect = connect_here
        for name in ("execute", "sql", "query"):
            self._record_statements(name)

    def _record_statements(self, name: str) -> None:
        plain = getattr(duckdb.DuckDBPyConnection, name)

        def record(connection: duckdb.DuckDBPyConnection, query: Any, *args: Any, **kw: Any) -> Any:
            if isinstance(query, str):
                for path, lines in self.texts.items():
                    if all(line in query for line in lines):
                        self.files.setdefault(path, set()).add(self.context)
            return plain(connection, query, *args, **kw)

        setattr(duckdb.DuckDBPyConnection, name, record)

    def enter(self, context: str) -> str:
        """Count what runs from here on as reached by a test; return what it was before."""
        before, self.context = self.context, context
        self.coverage.switch_context(context)
        return before

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Enter a test."""
        self.enter(item.nodeid)
        try:
            return (yield)
        finally:
            self.enter("")

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[object], request: pytest.FixtureRequest
    ) -> Generator[None, object, object]:
        """Count what a fixture of several tests does as reached by them all."""
        if fixturedef.scope == "function":
            return (yield)
        of_file = fixturedef.scope in {"module", "class"}
        before = self.enter(SHARED + (_file(request.node.nodeid) if of_file else ""))
        try:
            return (yield)
        finally:
            self.enter(before)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add up a test's seconds: set-up, call and tear-down."""
        self.seconds[report.nodeid] = self.seconds.get(report.nodeid, 0.0) + report.duration

    def pytest_sessionfinish(self) -> None:
        """Write what was recorded."""
        self.coverage.stop()
        data = self.coverage.get_data()
        lines = {
            name: data.contexts_by_lineno(str(self.root / name))
            for name in self.sources
            if name.endswith(".py")
        }
        files = {name: sorted(contexts) for name, contexts in self.files.items()}
        reach = Reach(self.seconds, lines, files)
        self.output.write_text(json.dumps(reach._asdict()), encoding="utf-8")


def _longest_lines(text: str) -> list[str]:
    lines = {line.strip() for line in text.splitlines() if not line.strip().startswith("--")}
    return sorted((line for line in lines if "{" not in line), key=len)[-3:]


class Order:
    """Run the tests of a list in its order, and no others."""

    def __init__(self, tests: list[str]) -> None:
        self.places = {test: place for place, test in enumerate(tests)}

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> Iterator[None]:
        """Select and sort after every other hook."""
        yield
        items[:] = sorted(
            (item for item in items if item.nodeid in self.places),
            key=lambda item: self.places[item.nodeid],
        )


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add what `python -m tests.mutation` asks for."""
    parser.addoption("--reach-of", help="a file that names the sources, one a line")
    parser.addoption("--reach-to", help="write here which test reaches which line of them")
    parser.addoption("--reach-order", help="a file that names the tests to run, one a line")


def pytest_configure(config: pytest.Config) -> None:
    """Register what the options ask for."""
    order, output = config.getoption("--reach-order"), config.getoption("--reach-to")
    if order:
        config.pluginmanager.register(Order(_read(order)), "reach-order")
    if output:
        sources = _read(config.getoption("--reach-of"))
        recorder = Recorder(config.rootpath, sources, Path(output))
        config.pluginmanager.register(recorder, "reach-recorder")


def _read(path: str) -> list[str]:
    return Path(path).read_text(encoding="utf-8").splitlines()
