"""SIGTERM in the middle of each job: that job is finished, no other is begun, all is whole."""

import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from actions.cluster.client import KubeClient
from actions.journal import event_types
from actions.policy.parser import read_policies
from fallow.action_models import Change
from fallow.settings import Settings, load
from runtime.service.jobs import ServiceLoop
from runtime.service.loop import serve
from runtime.service.metrics import SelfMetrics
from runtime.service.readiness import Readiness
from runtime.service.roles import ServiceJob, ServiceRole
from runtime.service.schedule import run_job
from tests.actions.loop.site import Site
from tests.actions.notices.conftest import Hook
from tests.cli.conftest import Fallow
from tests.cli.conftest import fallow as fallow  # noqa: PLC0414  (fixtures)
from tests.cli.test_acting_whole import Exporter
from tests.cli.test_acting_whole import exporter as exporter  # noqa: PLC0414
from tests.cli.test_acting_whole import hook as hook  # noqa: PLC0414
from tests.cli.test_acting_whole import site as site  # noqa: PLC0414
from tests.queries_without_end import QUERIES_WITHOUT_END
from warehouse.lake import Warehouse
from warehouse.verification import verify_warehouse

JOBS = ("inventory", "collect", "stalled", "account", "analyze", "verify", "maintain")
METHODS = {"verify": "verify_journal"}
"""Jobs whose method has another name."""
WORKERS = (ServiceRole.collector, ServiceRole.analyzer, ServiceRole.actor)
WAIT_S = 60.0
"""Only a deadlock waits so long."""


class Told:
    """Sends SIGTERM once, in a job, and waits until the service has heard of it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, victim: str) -> None:
        self.stop = threading.Event()
        self.victim, self.running = victim, ""
        self.begun: list[str] = []
        self.ended: list[str] = []
        for job in JOBS:
            method = METHODS.get(job, job)
            monkeypatch.setattr(
                ServiceLoop, method, self._watched(job, getattr(ServiceLoop, method))
            )
        monkeypatch.setattr(Warehouse, "transaction", self._writing(Warehouse.transaction))

    def send(self) -> None:
        if not self.stop.is_set():
            os.kill(os.getpid(), signal.SIGTERM)
            assert self.stop.wait(WAIT_S)

    def _watched(
        self, job: str, real: Callable[[ServiceLoop], None]
    ) -> Callable[[ServiceLoop], None]:
        def run(service: ServiceLoop) -> None:
            self.running = job
            self.begun.append(job)
            real(service)
            if job == self.victim:
                self.send()  # a job that writes nothing
            self.ended.append(job)
            self.running = ""

        return run

    def _writing(self, real: Callable[..., Any]) -> Callable[..., Any]:
        @contextmanager
        def transaction(warehouse: Warehouse, **named: Any) -> Iterator[Any]:
            with real(warehouse, **named) as cursor:
                if self.running == self.victim:
                    self.send()  # the write is begun, and nothing of it is there yet
                yield cursor

        return transaction


# The other jobs are finished by the same code: "account" is in every run.
@pytest.mark.parametrize(
    "job",
    [job if job == "account" else pytest.param(job, marks=pytest.mark.long) for job in JOBS],
)
def test_the_running_job_is_finished_and_no_other_begun(
    job: str,
    tmp_path: Path,
    exporter: Exporter,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    exporter.labels = {"node": "n1", "space": "a", "pod": "p"}
    flags = {
        "home": tmp_path / "home",
        "cluster": "c",
        "exporters.targets": [exporter.url],
        "service.listen": "127.0.0.1:0",
        "prices.usd_per_gpu_hour": "2.00",
    }
    settings = load(environ={}, flags=flags).settings
    result = Told(monkeypatch, job)
    caplog.set_level(logging.INFO, "fallow")
    before = signal.getsignal(signal.SIGTERM)
    serve(settings, result.stop, roles=WORKERS)
    assert signal.getsignal(signal.SIGTERM) is before
    assert result.begun == result.ended == list(JOBS[: JOBS.index(job) + 1])
    assert caplog.messages[-1] == "stopped; nothing is half-written"
    assert not [r for r in caplog.records if r.levelno >= logging.ERROR]
    assert_whole(settings, looks=job != "inventory")


def assert_whole(settings: Settings, *, looks: bool) -> None:
    with Warehouse.open(settings, write=True) as lake:  # the writer's lock is free
        assert [c for c in verify_warehouse(lake) if not c.ok] == []
        stored = lake.query("SELECT count(*) AS n FROM sample").to_pylist()[0]["n"]
    assert bool(stored) is looks


# The running job is finished: above; the lease is given up: tests/actions/loop/test_lease.py.
@pytest.mark.long
@pytest.mark.slow
def test_the_actor_finishes_its_turn_and_gives_the_lease_up(
    site: Site, fallow: Fallow, hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = load(
        file=site.folder.parent / "fallow.yaml",
        environ={},
        flags={"actions.enabled": True, "service.listen": "127.0.0.1:0"},
    ).settings
    earlier = timedelta(seconds=370)
    monkeypatch.setattr(
        "runtime.cli.options.CommandRun.now", lambda _run: datetime.now(UTC) - earlier
    )
    assert fallow("collect", "--once").code == 0
    assert fallow("apply", "--yes").code == 0
    assert hook.got
    (policy,) = read_policies([site.folder.parent / "policies"], interval=timedelta(minutes=2))
    trust = {"fingerprint": policy.fingerprint, "forced": True}
    site.journal().append(event_types.TRUSTED, "notebooks", trust)

    stop, real, sent = threading.Event(), KubeClient.send, []

    def send(door: KubeClient, change: Change, *, dry_run: bool) -> Any:
        if change.target.kind == "Notebook" and not dry_run and not stop.is_set():
            os.kill(os.getpid(), signal.SIGTERM)
            assert stop.wait(WAIT_S)
            sent.append(change.path)
        return real(door, change, dry_run=dry_run)

    monkeypatch.setattr(KubeClient, "send", send)
    serve(settings, stop, roles=[ServiceRole.actor])
    assert len(sent) == 1
    assert "kubeflow-resource-stopped" in site.get("Notebook", "nb")["metadata"]["annotations"]
    journal = site.journal()
    assert journal.verify() is None
    rows = [
        e.kind for e in journal.entries(event_types.INTENT, event_types.SENDING, event_types.SENT)
    ]
    assert rows == [event_types.INTENT, event_types.SENDING, event_types.SENT]
    lease = site.door().get("/apis/coordination.k8s.io/v1/namespaces/fallow/leases/fallow-actor")
    assert lease is not None
    assert lease["spec"]["holderIdentity"] == ""


def test_a_job_that_waited_its_turn_is_not_begun_after_all() -> None:
    stop, ran = threading.Event(), []
    metrics = SelfMetrics()
    ready = Readiness(timedelta(0), lambda: datetime.now(UTC))
    job = ServiceJob("late", timedelta(minutes=1), lambda: ran.append(1), ServiceRole.collector)
    run_job(job, stop, metrics, ready)
    stop.set()
    run_job(job, stop, metrics, ready)
    assert ran == [1]


@pytest.mark.parametrize(("words", "code"), [(("up",), 2), (("spend",), 1)])
def test_an_end_amid_a_query_has_the_exit_code_of_the_command(
    words: tuple[str, ...], code: int, tmp_path: Path
) -> None:
    """`up` has nothing to collect, `spend` no warehouse; a thread in the engine aborted both."""
    command = [sys.executable, "-c", QUERIES_WITHOUT_END, *words, "--home", str(tmp_path / "home")]
    environ = {name: value for name, value in os.environ.items() if not name.startswith("FALLOW_")}
    ended = subprocess.run(command, env=environ, capture_output=True, timeout=120, check=False)
    assert ended.returncode == code, ended.stderr
