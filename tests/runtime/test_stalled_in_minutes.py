"""A hung job is on /metrics, and in the warehouse, within two intervals after its ten minutes."""

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta

import pytest

from analyzers.stalled.analyzer import StalledAnalyzer
from fallow.protocols import Analyzer
from fallow.settings import Settings
from fallow.tables import Batch
from fallow.window import Window
from runtime.service.jobs import ServiceLoop
from runtime.service.metrics import SelfMetrics
from runtime.service.roles import WRITERS, ServiceRole
from tests.analyzers.gangs import SHOWN
from warehouse.lake import Warehouse

pytestmark = pytest.mark.slow

BEGIN = datetime(2026, 11, 20, 12, tzinfo=UTC)
HANGS = BEGIN + timedelta(minutes=15)
"""Since when the ranks of `hung` spin; `works` goes on."""
RANKS = 4
MINUTE = timedelta(minutes=1)
Clock = Callable[[], datetime]


class Exporters:
    """Four ranks of two jobs, one scrape per call; `until` ends the hang."""

    def __init__(self, interval: timedelta, until: datetime | None = None) -> None:
        self.interval, self.until = interval, until

    def collect(self, window: Window) -> Iterator[Batch]:
        at = window.end
        spins = at >= HANGS and (self.until is None or at < self.until)
        for job in ("hung", "works"):
            shown = SHOWN["spin" if spins and job == "hung" else "work"]
            yield Batch.of(
                "sample",
                {
                    "cluster": ["test"] * RANKS,
                    "ts": [at.replace(tzinfo=None)] * RANKS,
                    "device": [f"GPU-{job}-{n}" for n in range(RANKS)],
                    "node": [f"{job}-n{n}" for n in range(RANKS)],
                    "model": ["NVIDIA H100 80GB HBM3"] * RANKS,
                    "namespace": ["ml"] * RANKS,
                    "pod": [f"{job}-{n}" for n in range(RANKS)],
                    "interval_s": [self.interval.total_seconds()] * RANKS,
                    **{name: [value] * RANKS for name, value in shown.items()},
                },
            )


class Inventory:
    """The pods of both jobs."""

    def collect(self, window: Window) -> Iterator[Batch]:
        seen = window.end.replace(tzinfo=None)
        names = [(job, n) for job in ("hung", "works") for n in range(RANKS)]
        count = len(names)
        yield Batch.of(
            "pod",
            {
                "cluster": ["test"] * count,
                "uid": [f"uid-{job}-{n}" for job, n in names],
                "namespace": ["ml"] * count,
                "pod": [f"{job}-{n}" for job, n in names],
                "node": [f"{job}-n{n}" for job, n in names],
                "phase": ["Running"] * count,
                "workload_kind": ["PyTorchJob"] * count,
                "workload": [job for job, _ in names],
                "team": ["research"] * count,
                "gpu_request": [1.0] * count,
                "created_at": [(BEGIN - timedelta(hours=1)).replace(tzinfo=None)] * count,
                "started_at": [(BEGIN - timedelta(hours=1)).replace(tzinfo=None)] * count,
                "first_seen": [seen] * count,
                "last_seen": [seen] * count,
            },
        )


class Time:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = BEGIN

    def __call__(self) -> datetime:
        return self.now


def jobs(service: ServiceLoop) -> Mapping[str, Callable[[], object]]:
    return {job.name: job.run for job in service.jobs()}


def stalled(metrics: SelfMetrics) -> tuple[float | None, ...]:
    """Return how many jobs are stalled: suspected, confirmed."""
    return tuple(
        metrics.registry.get_sample_value("fallow_stalled_jobs", {"evidence": evidence})
        for evidence in ("suspected", "confirmed")
    )


def service(
    warehouse: Warehouse,
    clock: Clock,
    exporters: Exporters,
    metrics: SelfMetrics,
    analyzers: Mapping[str, Analyzer] | None = None,
) -> ServiceLoop:
    return ServiceLoop(
        warehouse,
        warehouse.settings,
        collectors={"exporters": exporters, "kubernetes": Inventory()},
        analyzers={"stalled": StalledAnalyzer()} if analyzers is None else analyzers,
        metrics=metrics,
        clock=clock,
    )


# The same, with intervals twice as long: 30 s is in every run.
@pytest.mark.parametrize("seconds", [30, pytest.param(60, marks=pytest.mark.long)])
def test_a_hang_is_told_within_two_intervals_after_its_ten_minutes_and_not_before(
    settings: Settings, seconds: int
) -> None:
    interval, clock, metrics = timedelta(seconds=seconds), Time(), SelfMetrics()
    every = settings.service.model_copy(update={"collect_every": interval})
    settings = settings.model_copy(update={"service": every})
    with Warehouse.open_in_memory(settings, clock=clock) as warehouse:
        mine = service(warehouse, clock, Exporters(interval), metrics)
        told_at = None
        while told_at is None and clock.now < HANGS + 20 * MINUTE:
            if (clock.now - BEGIN) % settings.service.inventory_every == timedelta():
                mine.inventory()
            mine.collect()
            # The judge itself is cheap; what may not yet be told is asked near the end only.
            if clock.now >= HANGS + 8 * MINUTE:
                jobs(mine)["stalled"]()
                told_at = clock.now if stalled(metrics) != (0, 0) else None
            clock.now += interval
        assert stalled(metrics) == (1, 0)
        assert told_at is not None
        assert 10 * MINUTE <= told_at - HANGS <= 10 * MINUTE + 2 * interval
        (row,) = warehouse.query("SELECT workload, kind FROM finding").to_pylist()
        assert (row["workload"], row["kind"]) == ("hung", "stalled_job")


def test_a_hang_that_is_over_is_told_no_more_and_stays_a_finding(settings: Settings) -> None:
    clock, metrics = Time(), SelfMetrics()
    with Warehouse.open_in_memory(settings, clock=clock) as warehouse:
        over = Exporters(MINUTE, until=HANGS + 15 * MINUTE)
        mine = service(warehouse, clock, over, metrics)
        seen = {}
        for minute in range(41):
            clock.now = BEGIN + minute * MINUTE
            if minute == 0:
                mine.inventory()
            mine.collect()
            if minute in {26, 40}:
                jobs(mine)["stalled"]()
                seen[minute] = stalled(metrics)
        assert seen == {26: (1, 0), 40: (0, 0)}
        assert len(warehouse.query("SELECT id FROM finding").to_pylist()) == 1


def test_it_follows_each_collection_and_runs_where_analyzers_run(settings: Settings) -> None:
    with Warehouse.open_in_memory(settings) as warehouse:
        mine = service(warehouse, Time(), Exporters(MINUTE), SelfMetrics())
        names = [job.name for job in mine.jobs()]
        assert names.index("stalled") == names.index("collect") + 1
        (job,) = [job for job in mine.jobs() if job.name == "stalled"]
        assert (job.every, job.role) == (settings.service.collect_every, ServiceRole.analyzer)
        assert ServiceRole.analyzer in WRITERS
        none = service(warehouse, Time(), Exporters(MINUTE), SelfMetrics(), {})
        assert "stalled" not in {job.name for job in none.jobs()}


class Failing:
    """An analyzer with a fault of its own."""

    def find(self, _views: object, _window: Window) -> list[object]:
        raise ZeroDivisionError("division by zero")


def test_a_fault_of_the_judge_is_its_own_and_nobody_takes_it_for_none_stalled(
    settings: Settings,
) -> None:
    clock, metrics = Time(), SelfMetrics()
    with Warehouse.open_in_memory(settings, clock=clock) as warehouse:
        broken: dict[str, Analyzer] = {"stalled": Failing()}  # type: ignore[dict-item]
        mine = service(warehouse, clock, Exporters(MINUTE), metrics, broken)
        jobs(mine)["stalled"]()
    text = metrics.text().decode()
    assert 'fallow_plugin_up{kind="analyzer",plugin="stalled"} 0.0' in text
    assert stalled(metrics) == (None, None)
