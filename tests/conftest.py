"""Fixtures of every test: public data, a fixed clock, settings with a home of their own."""

import gc
import importlib
import os
import random
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import settings as hypothesis_settings

from collectors.prometheus.client import PrometheusClient
from collectors.prometheus.collector import PrometheusCollector
from fallow.kube.api import BackOff
from fallow.settings import Settings, load
from tests.by_file import ByFile, scope, slow
from tests.copies import copied
from tests.isolation import own_globals
from tests.marking import mark_items, nothing_started, wants_kube
from tests.servers import kube_apiserver, postgres
from tests.servers import prometheus as real_prometheus
from warehouse import catalog, schema
from warehouse.lake import Warehouse

os.environ.pop("COLUMNS", None)  # tables are whole, as in a pipe
SHARED = "PYTEST_XDIST_WORKER" in os.environ
if SHARED:  # before anybody imports it
    os.environ.setdefault("POLARS_MAX_THREADS", "1")

# Two shared cores and an engine behind many properties: time is benchmarks' business.
hypothesis_settings.register_profile("fallow", deadline=None, max_examples=50)
hypothesis_settings.load_profile("fallow")
# `make test-fast`: properties are tried on a few examples, with the same ones each time.
hypothesis_settings.register_profile("fast", deadline=None, max_examples=10, derandomize=True)

# Journals and catalogs are synced at each commit: 5 ms on a disk, nothing in memory.
MEMORY = Path("/dev/shm")
ENOUGH_B = 4 * 1024**3


def choose_folder(memory: Path) -> None:
    """Let pytest's folders lie in memory, where there is enough and programs may start from it."""
    if not memory.is_dir() or shutil.disk_usage(memory).free < ENOUGH_B:
        return
    if not os.statvfs(memory).f_flag & os.ST_NOEXEC:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(memory))


choose_folder(MEMORY)

KUBE_COUNT = Path(__file__).parent / "servers" / "kube_count.txt"
DATA = Path(__file__).resolve().parents[1].parent / "shared" / "data"
REFERENCE = DATA.parent / "reference"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    """Give each process whole files."""
    config.option.loadscopereorder = False
    return ByFile(config, log)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option of `make test-fast`."""
    parser.addoption("--no-servers", action="store_true", help="a test that starts one fails")
    parser.addoption("--kube", action="store_true", help="only what a real API server answers")


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """End `make test-kube` at once where there is no API server to test."""
    if session.config.option.kube and kube_apiserver.controllers() is None:
        pytest.exit(kube_apiserver.without_controllers(), returncode=4)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a run of `make test-kube` in which fewer tests ran than the stored count."""
    config = session.config
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if not config.option.kube or reporter is None or hasattr(config, "workerinput"):
        return
    ran = sum(len(reporter.stats.get(kind, ())) for kind in ("passed", "failed"))
    least = int(KUBE_COUNT.read_text(encoding="utf-8"))
    reporter.write_line(f"\n{ran} tests ran on a real API server; the least is {least}")
    if ran < least and session.exitstatus == 0:
        session.exitstatus = 1


@pytest.fixture(scope="session", autouse=True)
def no_servers(request: pytest.FixtureRequest) -> Iterator[None]:
    """Hold tests to their marks, under `--no-servers`."""
    with nothing_started() if request.config.getoption("--no-servers") else nullcontext():
        yield


@pytest.hookimpl(tryfirst=True, specname="pytest_collection_modifyitems")
def pytest_mark_items(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what needs a server or a browser, before `-m` selects by it; that takes seconds."""
    if "server" in config.option.markexpr or "browser" in config.option.markexpr:
        mark_items(items)
    if config.option.kube:
        kept = [item for item in items if wants_kube(item)]
        config.hook.pytest_deselected(items=[item for item in items if not wants_kube(item)])
        items[:] = kept


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest first: the last file to begin should not be one of them."""
    whole: Counter[str] = Counter()
    paths = {item.nodeid.partition("::")[0] for item in items}
    for path in paths:
        whole[scope(path)] += slow(path)
    items.sort(key=lambda item: -whole[scope(item.nodeid.partition("::")[0])])


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Leave what is collected to the end: half a million objects are a third of a second each time.

    The garbage collector reads them at every full collection otherwise.
    """
    gc.collect()
    gc.freeze()


LACKS = {
    "public data": ("public data set",),
    "API server": ("kube-apiserver", "kube_apiserver", "controller-manager", "without controllers"),
    "GPU": ("nvidia", "nvml", "a gpu"),
    "extra": ("could not import", "extra", "tools.lock"),
    "program": ("debian", "not installed", "no postgresql", "no namespaces"),
}
"""What a skipped test lacks, by words of the reason; other reasons are no lack."""


def classify_skip(reason: str) -> str:
    """Return what a skipped test lacks, by its reason: a key of LACKS, or "other"."""
    lower = reason.lower()
    return next((lack for lack, words in LACKS.items() if any(w in lower for w in words)), "other")


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print how many tests were skipped, by what they lack: a green run may have tested little."""
    reasons = [str(report.longrepr[2]) for report in terminalreporter.stats.get("skipped", ())]
    counts = Counter(classify_skip(reason) for reason in reasons)
    listed = ", ".join(f"{lack} {counts[lack]}" for lack in (*LACKS, "other"))
    terminalreporter.write_line(f"skipped for lack of: {listed}")


def pytest_report_header() -> str:
    """Print which Kubernetes API servers the contract tests use."""
    folder = kube_apiserver.assets()
    real = f"kube-apiserver of {folder}" if folder else f"skipped: {kube_apiserver.absence()}"
    if folder is not None:
        has_controllers = kube_apiserver.controllers() is not None
        real += (
            ", with controllers" if has_controllers else f"; {kube_apiserver.without_controllers()}"
        )
    return f"kubernetes: API stub; {real}"


def _beside(root: Path, name: str) -> Path:
    path = root / name
    if not path.exists():
        pytest.skip(f"public data set {name!r} is not beside the checkout")
    return path


@pytest.fixture(scope="session", autouse=True)
def single_engine_thread() -> Iterator[None]:
    """Give an engine one thread where several test processes share the cores.

    Its threads would only wait for each other: a quarter of the processors' time.
    """
    configure = catalog._configure

    def configure_single(
        connection: duckdb.DuckDBPyConnection, settings: Settings, where: catalog.CatalogLocation
    ) -> None:
        configure(connection, settings, where)
        if not settings.warehouse.threads:
            connection.execute("SET threads = 1")

    with pytest.MonkeyPatch.context() as patch:
        if SHARED:
            patch.setattr(catalog, "_configure", configure_single)
        yield


@pytest.fixture(scope="session", autouse=True)
def short_pauses() -> Iterator[None]:
    """Make the pauses before another attempt at a server short, where a test injects none."""

    def sleep(seconds: float) -> None:
        time.sleep(seconds / 50)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BackOff.__init__, "__defaults__", (sleep, random.random))
        for source in (PrometheusClient, PrometheusCollector):
            patch.setitem(source.__init__.__kwdefaults__ or {}, "sleep", sleep)
        yield


@pytest.fixture(scope="module", autouse=True)
def isolation() -> Iterator[None]:
    """Give each file of tests its own globals: secrets, logging, settings in force, environment."""
    with own_globals():
        yield


@pytest.fixture(scope="session", autouse=True)
def born_whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Let a new embedded warehouse be the copy of one that was made before, in these processes.

    Hundreds of tests begin with an empty one. Other processes, and a run without xdist, make it.
    """
    opened = Warehouse.open.__func__  # type: ignore[attr-defined]
    migrations = schema.load_migrations
    made: list[Path] = []

    def open_(cls: type[Warehouse], settings: Settings, /, **how: Any) -> Warehouse:
        where = catalog.locate_catalog(settings)
        data = where.home / "data"
        new = where.embedded and not (where.home / catalog.CATALOG_FILE).exists()
        new = new and schema.load_migrations is migrations
        if how.get("write") and new and where.data == f"{data}/" and not data.exists():
            if not made:
                first = Settings(home=tmp_path_factory.mktemp("empty") / "home")
                opened(cls, first, write=True).close()
                made.append(first.home)
            copied(made[0], where.home)
        return opened(cls, settings, **how)  # type: ignore[no-any-return]

    with pytest.MonkeyPatch.context() as patch:
        if SHARED:
            patch.setattr(Warehouse, "open", classmethod(open_))
        yield


@pytest.fixture
def shared_data() -> Callable[[str], Path]:
    """Return the path of a public data file, or skip where it is absent."""
    return lambda name: _beside(DATA, name)


@pytest.fixture
def reference() -> Callable[[str], Path]:
    """Return the path of a reference sample such as `samples/h100_node.prom`, or skip."""
    return lambda name: _beside(REFERENCE, name)


@pytest.fixture(scope="session")
def prometheus_with_history(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the URL of a real Prometheus whose day ends at `now`; skip where it is absent.

    Its users bear `xdist_group("prometheus")`, so that one process builds the blocks once.
    """
    real_prometheus.binary("prometheus")
    text = real_prometheus.history(_beside(REFERENCE, "samples"))
    data = real_prometheus.blocks(text, tmp_path_factory.mktemp("prometheus"))
    with real_prometheus.serving(data) as url:
        yield url


@pytest.fixture(scope="session")
def database_server() -> Iterator[postgres.Server]:
    """Start a PostgreSQL for tests that do not stop it; each makes a database of its own there."""
    with postgres.serving() as running:
        yield running


@pytest.fixture
def now() -> datetime:
    """Return the time that tests use as now."""
    return datetime(2026, 11, 20, 12, 0, tzinfo=UTC)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Return default settings whose home is a folder of this test's own."""
    return load(environ={}, flags={"home": tmp_path / "home", "cluster": "test"}).settings


@pytest.fixture(scope="session")
def ray_nodes() -> Iterator[str]:
    """Start a Ray cluster of two local nodes of two CPUs each; return its address."""
    pytest.importorskip("ray", reason="the extra ray is absent")
    cluster = importlib.import_module("ray.cluster_utils").Cluster()
    try:
        for _ in range(2):
            cluster.add_node(num_cpus=2, include_dashboard=False)
        cluster.wait_for_nodes(120)
        yield cluster.address
    finally:
        cluster.shutdown()
