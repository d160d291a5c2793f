"""The service reads the history of its Prometheus by itself, newest first."""

import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from collectors.prometheus.collector import PrometheusCollector
from fallow.errors import SourceError
from fallow.settings import Settings, load
from runtime.operations.ingestion.collection import find_next_start, read_cursors
from runtime.service.jobs import ServiceLoop
from runtime.service.metrics import SelfMetrics
from tests.servers import prometheus as server
from warehouse.coverage import describe_unread_history, name_stale, read_ages
from warehouse.lake import Warehouse

pytestmark = pytest.mark.xdist_group("prometheus-history-fill")
NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
HOURS = 48
"""Hours of samples; before the newest 30 there is a hole of a whole day."""


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("history")
    lines = ["# TYPE DCGM_FI_DEV_GPU_UTIL gauge"]
    labels = '{Hostname="n1",UUID="GPU-0",gpu="0",modelName="NVIDIA H100 80GB HBM3"}'
    for hour in range(-72, 0):
        at = NOW + timedelta(hours=hour)
        if not -54 <= hour < -30:
            lines += [
                f"DCGM_FI_DEV_GPU_UTIL{labels} 0 {at.timestamp() + 60 * minute:.0f}"
                for minute in range(60)
            ]
    data = server.blocks("\n".join([*lines, "# EOF", ""]), folder / "prometheus")
    with server.serving(data) as url:
        yield url


@pytest.fixture
def settings(prometheus: str, tmp_path: Path) -> Settings:
    flags = {
        "home": tmp_path / "home",
        "cluster": "c",
        "prometheus.url": prometheus,
        "prometheus.history": "4d",
    }
    return load(environ={}, flags=flags).settings


class Site:
    """A service over a site whose time stands at NOW."""

    def __init__(self, settings: Settings, lake: Warehouse, stop: threading.Event) -> None:
        cursors = read_cursors(lake)
        past = PrometheusCollector(settings.prometheus, "c", lambda: NOW, cursors=cursors)
        self.lake, self.settings = lake, settings
        self.analyzed: list[float] = []
        self.service = ServiceLoop(
            lake,
            settings,
            collectors={"prometheus": past},
            analyzers={},
            metrics=SelfMetrics(),
            clock=lambda: NOW,
            since={"prometheus": find_next_start(past, cursors, NOW)},
            stop=stop,
        )
        history = self.service._history
        if history is not None:
            history._pause = lambda _seconds: stop.is_set()
            history._analyze = lambda: self.analyzed.append(self.hours())

    def hours(self) -> float:
        """Return the GPU-hours of the ledger with a known state."""
        text = (
            "SELECT coalesce(sum(gpu_seconds), 0) / 3600 AS hours FROM ledger "
            "WHERE state != 'unknown'"
        )
        return float(self.lake.query(text).to_pylist()[0]["hours"])

    def run(self, job: str) -> None:
        next(j for j in self.service.jobs() if j.name == job).run()


@pytest.fixture
def open_site(settings: Settings) -> Iterator[Callable[..., Site]]:
    lakes: list[Warehouse] = []

    def make(stop: threading.Event | None = None) -> Site:
        for lake in lakes:
            lake.close()
        lakes.append(Warehouse.open(settings, write=True, clock=lambda: NOW))
        return Site(settings, lakes[-1], stop or threading.Event())

    yield make
    for lake in lakes:
        lake.close()


def test_all_days_of_the_history_are_accounted_without_an_import(
    open_site: Callable[..., Site], settings: Settings
) -> None:
    site = open_site()
    site.run("collect")
    site.run("account")
    assert site.hours() < 1
    assert "are not read yet" in (
        describe_unread_history(site.lake, "c", settings.prometheus.history) or ""
    )
    site.run("history")
    assert site.hours() == pytest.approx(HOURS, abs=0.1)
    assert describe_unread_history(site.lake, "c", settings.prometheus.history) is None
    assert site.analyzed == [site.hours()]


def test_a_stopped_fill_has_the_newest_days_and_the_next_start_reads_the_others(
    open_site: Callable[..., Site],
) -> None:
    stop = threading.Event()
    site = open_site(stop)
    history = site.service._history
    assert history is not None
    history._account = stop.set
    site.run("history")
    site.service.account()
    first = site.hours()
    assert 11 <= first <= 12.1
    text = "SELECT min(bucket) AS first FROM ledger"
    assert site.lake.query(text).to_pylist()[0]["first"] == datetime(2026, 11, 20)  # noqa: DTZ001
    again = open_site()
    again.run("history")
    assert again.hours() == pytest.approx(HOURS, abs=0.1)


def test_what_is_read_is_not_read_again(open_site: Callable[..., Site]) -> None:
    open_site().run("history")
    again = open_site()
    samples = again.lake.query("SELECT count(*) AS n FROM scrape").to_pylist()
    again.run("history")
    assert again.lake.query("SELECT count(*) AS n FROM scrape").to_pylist() == samples


def test_a_prometheus_that_fails_while_days_are_read_is_read_again(
    open_site: Callable[..., Site], monkeypatch: pytest.MonkeyPatch
) -> None:
    site = open_site()
    real = PrometheusCollector.collect
    days = []

    def fail_second(collector: PrometheusCollector, window: object) -> object:
        days.append(window)
        if len(days) == 2:
            collector.failure = SourceError("half an answer")
            return iter(())
        return real(collector, window)  # type: ignore[arg-type]

    monkeypatch.setattr(PrometheusCollector, "collect", fail_second)
    site.run("history")
    assert site.hours() < 13
    assert describe_unread_history(site.lake, "c", timedelta(days=30)) is not None
    site.run("history")
    assert site.hours() == pytest.approx(HOURS, abs=0.1)
    assert len(site.analyzed) == 1


def test_no_backfill_reads_nothing_of_the_past(settings: Settings, tmp_path: Path) -> None:
    flags = {
        "home": tmp_path / "home",
        "prometheus.url": settings.prometheus.url,
        "prometheus.backfill": False,
    }
    settings = load(environ={}, flags=flags).settings
    with Warehouse.open(settings, write=True, clock=lambda: NOW) as lake:
        site = Site(settings, lake, threading.Event())
        assert "history" not in [job.name for job in site.service.jobs()]


def test_data_are_as_new_as_the_last_scrape_and_not_as_the_last_accounting(
    prometheus: str, tmp_path: Path
) -> None:
    """A minute's scrape is not stale for the five minutes until it is accounted."""
    flags = {"home": tmp_path / "home", "cluster": "c", "prometheus.url": prometheus}
    settings = load(environ={}, flags=flags).settings
    minute, now = timedelta(minutes=1), NOW - timedelta(hours=1)

    def clock() -> datetime:
        return now

    past = PrometheusCollector(settings.prometheus, "c", clock)
    with Warehouse.open(settings, write=True, clock=clock) as lake:
        service = ServiceLoop(
            lake,
            settings,
            collectors={"prometheus": past},
            analyzers={},
            metrics=SelfMetrics(),
            clock=clock,
            since={"prometheus": now - timedelta(minutes=10)},
        )
        service.collect()
        service.account()
        for _ in range(5):
            now += minute
            service.collect()
            assert name_stale(read_ages(lake), now, minute) == []
        now += 5 * minute
        assert len(name_stale(read_ages(lake), now, minute)) == 1
