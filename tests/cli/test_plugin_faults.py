"""A collector of another package that fails in any way costs its own turn, nothing else."""

import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from fallow import plugins
from fallow.errors import SourceError
from fallow.settings import Settings
from fallow.window import Window
from runtime.cli import run
from runtime.operations.accounting.prices import read_plugin_rates
from runtime.operations.ingestion import plugin_collectors
from runtime.operations.ingestion.collection import load_collectors
from runtime.operations.ingestion.plugin_collectors import PluginError

WINDOW = Window.last(timedelta(hours=1), now=datetime(2026, 11, 20, 12, tzinfo=UTC))

CODE = """
import os, sys, threading
from datetime import UTC, datetime
import pyarrow as pa
from fallow.errors import SourceError
from fallow.tables import Batch

END = threading.Event()


def build(**other):
    now = datetime.now(UTC).replace(tzinfo=None)
    sample = {"cluster": ["default"], "ts": [now], "device": ["GPU-1"], "node": ["n"]}
    row = {**sample, "interval_s": [60.0], "source": ["honest"], **other}
    return Batch.of("sample", row)


class Honest:
    def __init__(self, cluster):
        self.cluster = cluster

    def collect(self, window):
        yield build()
        now = [datetime.now(UTC).replace(tzinfo=None)]
        named = {"cluster": ["default"], "collector": ["honest"], "target": ["t"]}
        yield Batch.of("scrape", {**named, "ts": now, "until": now, "up": [True], "samples": [1]})


class Price:
    def rates(self, window):
        sys.exit(3)


class Faulty(Honest):
    def __init__(self, cluster):
        if os.environ["FAULT"] == "constructor":
            raise RuntimeError("none today")

    def collect(self, window):
        match os.environ["FAULT"]:
            case "own error":
                yield build(device=["GPU-2"])
                raise SourceError("its source is away")
            case "exit":
                sys.exit(3)
            case "interval":
                yield build(device=["GPU-2"], interval_s=[1e18])
            case "columns":
                yield Batch("sample", pa.table({"x": [1]}))
            case "table":
                yield Batch.of("ledger", {})
            case "endless":
                while True:
                    yield build(device=["GPU-3"])
            case "hang":
                END.wait()
"""
POINTS = """[fallow.collectors]
honest = faulty_package:Honest
faulty = faulty_package:Faulty
missing = no_such_module:Missing
[fallow.prices]
price = faulty_package:Price
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Lay a package with three collectors down as an installer does."""
    site = tmp_path / "site"
    info = site / "fallow_faulty-1.dist-info"
    info.mkdir(parents=True)
    (site / "faulty_package.py").write_text(CODE)
    (info / "METADATA").write_text("Name: fallow-faulty\nVersion: 1\n")
    (info / "entry_points.txt").write_text(POINTS)
    monkeypatch.syspath_prepend(site)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FALLOW_HOME", str(tmp_path / "home"))
    plugins.find_installed.cache_clear()
    yield tmp_path
    plugins.find_installed.cache_clear()
    if module := sys.modules.pop("faulty_package", None):
        module.END.set()


@pytest.mark.slow  # doctor binds the port of the pages, which test-fast does not
@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ("import", "no_such_module"),
        ("own error", "its source is away"),
        ("hang", "no complete answer within"),
        ("interval", "honest"),
    ],
)
def test_the_rows_of_others_are_stored_and_doctor_names_the_fault(
    fault: str,
    error: str,
    package: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("FAULT", fault)
    if fault == "hang":
        monkeypatch.setattr(plugin_collectors, "READ_WITHIN_S", 0.2)
    name = "missing" if fault == "import" else "faulty"
    (package / "fallow.yaml").write_text(f"plugins: {{{name}: {{}}, honest: {{}}}}\n")
    assert run(["collect", "--once", "-o", "csv"]) == 0
    assert error in capsys.readouterr().out
    assert run(["warehouse", "query", "SELECT DISTINCT device FROM sample", "-o", "csv"]) == 0
    assert capsys.readouterr().out.split() == ["device", "GPU-1"]
    if fault in {"own error", "interval"}:
        run(["doctor"])
        assert (
            "collector faulty" if fault == "own error" else "interval"
        ) in capsys.readouterr().out


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ("constructor", "none today"),
        ("exit", "SystemExit"),
        ("columns", "do not fit it"),
        ("table", "ledger"),
        ("endless", "over 2,000 rows"),
    ],
)
def test_no_fault_is_an_error_that_ends_the_pass(
    fault: str, error: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAULT", fault)
    monkeypatch.setattr(plugin_collectors, "MOST_ROWS", 2_000)
    (collector,) = load_collectors(Settings(plugins={"faulty": {}})).values()
    with pytest.raises((PluginError, RuntimeError), match=error):
        list(collector.collect(WINDOW))


@pytest.mark.usefixtures("package")
def test_a_price_source_that_ends_the_process_is_its_own_fault(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FAULT", "exit")
    with pytest.raises(SourceError, match="SystemExit"):
        read_plugin_rates(Settings(plugins={"price": {}}), "price", WINDOW)


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize("name", ["honset", "prometheus"])
def test_a_section_that_is_of_no_installed_plugin_is_refused(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("fallow.yaml").write_text(f"plugins: {{{name}: {{}}, honest: {{}}}}\n")
    assert run(["collect", "--once"]) == 2
    answer = capsys.readouterr().err
    assert f"plugins.{name}" in answer
    assert "honest" in answer
