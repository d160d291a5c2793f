"""The code of docs/extending.md, installed as a third party's package and held to the contract."""

import re
import sys
import tomllib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from fallow import plugins
from fallow.errors import RefusedError, SettingsError, SourceError
from fallow.protocols import Executor
from fallow.settings import Settings
from fallow.tables import Batch
from fallow.window import Window
from runtime.cli import run
from runtime.operations.accounting import prices
from runtime.operations.analysis import analyzer_runs
from tests.contract import test_every_executor as executors
from tests.contract import test_every_plugin as contract
from warehouse.lake import Warehouse

PAGE = (Path(__file__).resolve().parents[1] / "docs" / "extending.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"```\w+ file=(\S+)\n(.*?)```", PAGE, re.DOTALL))
POINTS = re.findall(r'\[project\.entry-points\."(fallow\.\w+)"\]\n(\S+) = "(\S+)"', PAGE)
(SECTION,) = re.findall(r"```yaml\n(plugins:\n.*?)```", PAGE, re.DOTALL)
AT, HOUR_AGO = datetime(2026, 11, 20, 12, tzinfo=UTC), timedelta(hours=1)
HOUR = datetime(2026, 11, 20, 11)  # noqa: DTZ001  (as rows have it: UTC without a zone)


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Lay the page's files down as an installer does: modules, and metadata with entry points."""
    site = tmp_path / "site"
    info = site / "fallow_smi_log-1.dist-info"
    info.mkdir(parents=True)
    for name, text in FILES.items():
        (site / name).write_text(text, encoding="utf-8")
    document = tomllib.loads(FILES["pyproject.toml"])["project"]
    (info / "METADATA").write_text(f"Name: {document['name']}\nVersion: {document['version']}\n")
    lines = [f"[{group}]\n{name} = {value}\n" for group, name, value in POINTS]
    (info / "entry_points.txt").write_text("\n".join(lines), encoding="utf-8")
    monkeypatch.syspath_prepend(site)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FALLOW_HOME", str(tmp_path / "home"))
    plugins.find_installed.cache_clear()
    yield site
    plugins.find_installed.cache_clear()
    for module in ("smi_log", "ownerless", "workspaces", "contract_prices"):
        sys.modules.pop(module, None)


def test_a_collector_of_20_lines_is_collected_from_and_under_contract(
    package: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = [line for line in FILES["smi_log.py"].splitlines() if line.strip()]
    assert len(code) <= 20
    assert "smi-log" in plugins.find_installed("collectors")
    contract.test_a_collector_whose_source_is_dead_says_so_in_a_row_and_never_raises(
        "smi-log", tmp_path / "dead"
    )
    (tmp_path / "smi.csv").write_text("GPU-1, NVIDIA L4, 7, 34.5\nGPU-2, NVIDIA L4, 0, 12.5\n")
    assert run(["plugins", "list", "-o", "csv"]) == 0
    assert "collectors,smi-log,smi_log:SmiLog,fallow-smi-log" in capsys.readouterr().out
    assert run(["collect", "--once", "--source", "smi-log"]) == 0
    capsys.readouterr()
    wanted = "SELECT device, gpu_util_pct AS util, power_w AS w FROM sample ORDER BY device"
    assert run(["warehouse", "query", wanted, "-o", "csv"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "device,util,w",
        "GPU-1,7.0,34.5",
        "GPU-2,0.0,12.5",
    ]
    (tmp_path / "smi.csv").write_text("GPU-1, NVIDIA L4, [N/A], 34.5\n")
    _, scrape = plugins.load("collectors", "smi-log")().collect(contract.WINDOW)
    assert scrape.rows["up"].to_pylist() == [False]
    assert "could not convert" in scrape.rows["error"][0].as_py()
    assert package.is_dir()


@pytest.mark.usefixtures("package")
def test_the_analyzer_finds_the_same_twice_and_nothing_in_an_empty_warehouse(
    tmp_path: Path, settings: Settings
) -> None:
    contract.test_an_analyzer_finds_nothing_in_an_empty_warehouse("ownerless", tmp_path / "empty")
    row: dict[str, Any] = {
        "cluster": "c",
        "bucket": HOUR,
        "device": "GPU-1",
        "state": "idle",
        "namespace": "orphans",
        "workload_kind": "Job",
        "workload": "a",
        "seconds": 3600.0,
        "gpu_seconds": 3600.0,
        "usd": 2,
        "priced": True,
    }
    owned = {**row, "device": "GPU-2", "namespace": "team-a", "team": "a"}
    rows: dict[str, object] = {name: [row.get(name), owned.get(name)] for name in owned}
    window = Window(HOUR.replace(tzinfo=UTC), HOUR.replace(hour=12, tzinfo=UTC))
    with Warehouse.open(settings, write=True) as warehouse:
        warehouse.replace("ledger", Batch.of("ledger", rows).rows)
        analyzer = plugins.load("analyzers", "ownerless")()
        (found,) = analyzer.find(warehouse, window)
        assert [found] == list(analyzer.find(warehouse, window))
    assert (found.subject.namespace, found.gpu_hours) == ("orphans", 1.0)


def test_what_the_settings_name_is_collected_priced_and_checked(
    package: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "smi.csv").write_text("GPU-1, NVIDIA L4, 7, 34.5\n")
    (tmp_path / "fallow.yaml").write_text(SECTION + "  smi-log: {}\n")
    assert run(["collect", "--once"]) == 0, "no --source is needed"
    sql = "SELECT DISTINCT node_usd_h FROM rate WHERE source = 'contract'"
    capsys.readouterr()
    assert run(["warehouse", "query", sql, "-o", "csv"]) == 0
    assert capsys.readouterr().out.splitlines() == ["node_usd_h", "2.50000000"]
    run(["doctor"])
    assert "price source contract" in capsys.readouterr().out
    assert package.is_dir()


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize(
    ("section", "message"),
    [
        ("contract: {usd_per_gpu_hour: much}", "plugins.contract.usd_per_gpu_hour"),
        ("contract: {usd: 2}", "plugins.contract"),
        ("smi-log: {path: smi.csv}", "the collector takes none"),
    ],
)
def test_settings_that_a_plugin_does_not_know_are_refused_by_their_names(
    section: str, message: str
) -> None:
    name, _, text = section.partition(": ")
    group = "prices" if name == "contract" else "collectors"
    with pytest.raises(SettingsError, match=message):
        plugins.build(group, name, {name: yaml.safe_load(text)})


@pytest.mark.usefixtures("package")
def test_a_price_source_that_fails_leaves_the_stored_prices_of_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = plugins.load("prices", "contract")
    settings = Settings(plugins={"contract": {"usd_per_gpu_hour": 2}})
    (batch,) = prices.read_market_rates(settings, AT)
    assert batch.rows["source"].to_pylist() == ["contract"]
    monkeypatch.setattr(source, "rates", lambda *_: 1 / 0)
    assert prices.read_market_rates(settings, AT) == []
    named = batch.rows.set_column(0, "source", [["settings"]])
    monkeypatch.setattr(source, "rates", lambda *_: Batch("rate", named))
    with pytest.raises(SourceError, match="rates of settings"):
        prices.read_plugin_rates(settings, "contract", Window.last(HOUR_AGO, now=AT))


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize(
    ("column", "value"),
    [("gpu_count", 0), ("gpu_count", None), ("node_usd_h", -5), ("node_usd_h", None)],
)
def test_a_rate_that_is_no_price_is_refused(
    column: str, value: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node of no GPUs made the hours that it priced fail."""
    source, window = plugins.load("prices", "contract"), Window.last(HOUR_AGO, now=AT)
    settings = Settings(plugins={"contract": {"usd_per_gpu_hour": 2}})
    (row,) = prices.read_plugin_rates(settings, "contract", window).rows.to_pylist()
    wrong = Batch.of("rate", {name: [part] for name, part in {**row, column: value}.items()})
    monkeypatch.setattr(source, "rates", lambda *_: wrong)
    with pytest.raises(SourceError, match="a node of"):
        prices.read_plugin_rates(settings, "contract", window)


def test_an_analyzer_of_another_package_has_no_group_of_the_settings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its name may be that of any group: it gets its own section, and nothing else."""
    received: list[object] = []
    monkeypatch.setattr(plugins, "load", lambda *_: lambda *given: received.append(given))
    analyzer_runs._load_analyzer(Settings(), "service")
    assert received == [()]


class Workspaces:
    """A cluster that has one Workspace."""

    name = "c"

    def __init__(self, spec: dict[str, Any]) -> None:
        meta = {"name": "w", "namespace": "a", "uid": "u-1", "resourceVersion": "7"}
        self.obj = {"apiVersion": "dev.example/v1", "metadata": meta, "spec": spec}

    def collection(self, kind: str, group: str | None = None, namespace: str = "") -> str:
        assert kind == "Workspace"
        return f"/apis/{group}/v1/namespaces/{namespace}/workspaces"

    def get(self, path: str) -> Any:
        return self.obj if path.endswith("/w") else None


@pytest.mark.usefixtures("package")
def test_the_executor_is_under_contract_and_refuses_what_it_must() -> None:
    executors.test_an_executor_says_what_it_does_and_what_it_needs("workspaces")
    executor = plugins.load("executors", "workspaces")()
    assert isinstance(executor, Executor)
    decision: Any = SimpleNamespace(subject=("c", "Workspace", "a", "w"))
    cluster: Any = Workspaces({"size": "L"})
    intent = executor.writes(decision, cluster)
    executors.held_to_the_contract(intent, executor.rights)
    assert intent.undo[0].body == {"spec": {"paused": None}}
    cluster = Workspaces({"paused": True})
    with pytest.raises(RefusedError, match="paused already"):
        executor.writes(decision, cluster)
