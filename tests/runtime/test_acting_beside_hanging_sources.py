"""A source hangs just before an act: people's requests and the other jobs do not wait for it."""

import shutil
import threading
from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from actions.loop.protocols import TurnReport
from fallow.action_models import Facts
from fallow.errors import TemporaryError
from fallow.settings import Settings, load
from fallow.system.daemon_threads import ThreadsClosedError
from runtime.operations.acting.actor_turns import open_turns
from runtime.operations.acting.requests import ActionRequests
from runtime.operations.ingestion.last_readings import open_last_readings
from runtime.service.jobs import ServiceLoop
from runtime.service.metrics import SelfMetrics
from runtime.service.readiness import Readiness
from runtime.service.roles import ServiceJob, ServiceRole
from runtime.service.schedule import ServiceThreads, get_utc_now, run_jobs
from runtime.service.tracing import trace_nothing
from tests.actions.loop.site import SPACE, Evidence, Site, bare
from tests.cli.test_acting import done
from tests.cli.test_acting import site as site  # noqa: PLC0414  (a fixture)
from tests.servers.dripping import dripping
from tests.servers.misbehaving import misbehaving
from warehouse.lake import Warehouse

WAIT_S = 60.0
POLICIES = Path(__file__).parents[2] / "policies"
API = f"Deployment/{SPACE}/api"


def settings_of(
    site: Site, *targets: str, age: str = "5m", prometheus: str = "", policies: Path = POLICIES
) -> Settings:
    flags = {
        "cluster": "c",
        "home": site.folder,
        "exporters.targets": [f"{url}/metrics" for url in targets],
        "exporters.timeout": "10m",
        "actions.evidence_age": age,
        "actions.policies": policies,
        "prometheus.url": prometheus,
    }
    return load(environ={}, flags=flags).settings


class ReadsAgain(Evidence):
    """Evidence of the test, whose sources are read again over HTTP before an act."""

    def __init__(self, site: Site, refresh: Callable[[datetime], None]) -> None:
        super().__init__(site.server.url, lambda: site.now)
        self.idle = site.evidence.idle
        self._refresh = refresh

    def again(self, facts: Facts, now: datetime) -> Facts | None:
        self._refresh(datetime.now(UTC))
        return super().again(facts, now)


def test_people_are_answered_while_a_source_drips_before_an_act(site: Site) -> None:
    stopped, before = done(site)
    site.deployment("api")
    site.told_and_waited(site.actor())
    reports: list[TurnReport] = []
    with (
        Warehouse.open_in_memory(settings_of(site)) as lake,
        ExitStack() as drip,
    ):
        exporter = drip.enter_context(dripping())
        settings = settings_of(site, exporter.url)
        with open_last_readings(lake, settings) as readings:
            actor = site.actor(evidence=ReadsAgain(site, readings.refresh))
            turn = threading.Thread(target=lambda: reports.append(actor.turn(dry_run=False)))
            turn.start()
            assert exporter.connected.wait(WAIT_S)
            people = ActionRequests(settings, None, lambda: datetime.now(UTC))
            assert people.undo(stopped.action.id, "ann")["result"] == "undone"
            assert bare(site.get("Deployment", "web")) == before
            people.keep(API, timedelta(hours=1), "ann")
            people.freeze("a source hangs", "ann")
            assert turn.is_alive(), "it still reads its source"
            drip.close()
            turn.join(WAIT_S)
    results = {(step.result, step.reasons[0].gate) for step in reports[0].steps}
    assert results == {("held", "frozen")}
    assert site.get("Deployment", "api")["spec"]["replicas"] == 2


def test_jobs_that_write_keep_their_period_while_the_actor_reads_a_source_that_drips(
    site: Site,
) -> None:
    stop, turns, threads, metrics = threading.Event(), list[int](), ServiceThreads(), SelfMetrics()

    def account() -> None:
        turns.append(1)
        if len(turns) >= 5 and exporter.connections:
            stop.set()

    policies = site.folder.parent / "policies"
    policies.mkdir()
    shutil.copy(POLICIES / "observe-all.yaml", policies)
    with dripping() as exporter:
        settings = settings_of(site, exporter.url, policies=policies)
        with (
            Warehouse.open_in_memory(settings) as lake,
            open_turns(
                settings,
                lake,
                get_utc_now,
                metrics.record_actor_turn,
                writer=threads.writer,
                stop=stop,
            ) as act,
        ):
            service = ServiceLoop(
                lake, settings, collectors={}, analyzers={}, metrics=metrics, clock=get_utc_now,
                act=act, stop=stop, readers=threads.readers, writer=threads.writer,
            )  # fmt: skip
            (acting,) = [job for job in service.jobs() if job.name == "act"]
            writing = ServiceJob("account", timedelta(seconds=0.2), account, ServiceRole.collector)
            limit = threading.Timer(WAIT_S, stop.set)
            limit.start()
            left = run_jobs(
                [acting, writing], stop, metrics, Readiness(timedelta(0), get_utc_now),
                    trace_nothing,
                threads=threads, grace_s=WAIT_S,
            )  # fmt: skip
            limit.cancel()
    assert exporter.connections == 1
    assert len(turns) >= 5
    assert left == [], "the turn ended though its source goes on"


def test_readings_end_together_at_one_deadline_and_what_was_read_is_stored(site: Site) -> None:
    with (
        dripping() as exporter,
        misbehaving() as server,
        Warehouse.open_in_memory(settings_of(site)) as lake,
    ):
        settings = settings_of(site, exporter.url, age="1s", prometheus=server.url)
        with open_last_readings(lake, settings) as readings:
            for _ in range(2):
                with pytest.raises(TemporaryError, match=r"within 1 s from exporters: what"):
                    readings.refresh(datetime.now(UTC))
        scrapes = lake.query("SELECT DISTINCT collector FROM scrape").to_pylist()
    assert scrapes == [{"collector": "prometheus"}]
    assert exporter.connections == 1, "a source that hangs is not read again"


def test_a_stop_of_the_service_ends_the_wait_for_a_source(site: Site) -> None:
    stop = threading.Event()
    with (
        dripping() as exporter,
        Warehouse.open_in_memory(settings_of(site)) as lake,
        open_last_readings(lake, settings_of(site, exporter.url), stop=stop) as readings,
    ):
        stop.set()
        with pytest.raises(ThreadsClosedError):
            readings.refresh(datetime.now(UTC))
