"""Roles over one warehouse: each does its part; an embedded one is one process's."""

import json
import os
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from fallow.errors import UsageError
from fallow.settings import Settings, load
from runtime.service.jobs import ServiceLoop
from runtime.service.loop import serve
from runtime.service.metrics import SelfMetrics
from runtime.service.readiness import Readiness
from runtime.service.roles import PARTS, ServiceJob, ServiceRole, expand_roles
from tests.cli.test_acting_whole import Exporter
from tests.cli.test_acting_whole import exporter as exporter  # noqa: PLC0414  (a fixture)
from tests.servers import postgres
from warehouse.lake import Warehouse

ROOT = str(Path(__file__).resolve().parents[2])
NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)


@contextmanager
def up(folder: Path, *words: str, **environ: str) -> Iterator[subprocess.Popen[str]]:
    """Run `fallow up` as a process of its own; it is told to stop at the end."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("FALLOW_")}
    command = [sys.executable, "-c", "from runtime.cli import main; main()", "up"]
    with subprocess.Popen(
        [*command, "--listen", "127.0.0.1:0", *words],
        env={**kept, "PYTHONPATH": ROOT, **environ},
        cwd=folder,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        watchdog = threading.Timer(200, process.kill)
        watchdog.start()
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            watchdog.cancel()


def until(process: subprocess.Popen[str], event: str) -> dict[str, object]:
    """Read a process's log until it says something."""
    assert process.stderr is not None
    seen = ""
    for line in process.stderr:
        seen += line
        if line.startswith("{") and (output := json.loads(line))["event"] == event:
            return dict(output)
    raise AssertionError(seen)


def answer(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url) as found:
            return found.status, found.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def rest(process: subprocess.Popen[str]) -> str:
    assert process.stderr is not None
    return process.stderr.read()


def test_every_job_is_some_roles_and_a_role_has_only_its_own(settings: Settings) -> None:
    def jobs(roles: frozenset[ServiceRole]) -> list[str]:
        with Warehouse.open(settings, write=True) as lake:
            service = ServiceLoop(
                lake, settings, collectors={}, analyzers={}, metrics=SelfMetrics(),
                clock=lambda: NOW, act=lambda: None, roles=roles,
            )  # fmt: skip
            return [job.name for job in service.jobs()]

    apart = [name for role in sorted(PARTS) for name in jobs(frozenset({role}))]
    assert sorted(apart) == sorted(jobs(expand_roles([])))
    assert jobs(frozenset({ServiceRole.actor})) == ["act", "verify"]
    assert jobs(frozenset({ServiceRole.dashboard})) == []


# tests/warehouse/test_postgres.py: processes that write and read over one PostgreSQL catalog.
@pytest.mark.long
@pytest.mark.slow
def test_roles_share_a_warehouse_with_a_postgresql_catalog(
    tmp_path: Path, exporter: Exporter
) -> None:
    exporter.labels = {"node": "n1", "space": "a", "pod": "p"}
    with postgres.serving() as server:
        environ = {
            "FALLOW_HOME": str(tmp_path / "home"),
            "FALLOW_WAREHOUSE__CATALOG": server.catalog("lake"),
            "FALLOW_EXPORTERS__TARGETS": f'["{exporter.url}"]',
            "FALLOW_SERVICE__COLLECT_EVERY": "1s",
        }
        with (
            up(tmp_path, "--role", "collector", **environ) as collector,
            up(tmp_path, "--role", "analyzer", **environ) as analyzer,
        ):
            assert until(collector, "up")["jobs"] == ["inventory", "collect", "account", "maintain"]
            assert until(analyzer, "up")["jobs"] == ["stalled", "analyze"]
            until(collector, "accounted")
            until(analyzer, "analyzed")
            for process in (collector, analyzer):
                process.send_signal(signal.SIGTERM)
                output = rest(process)
                assert process.wait(60) == 0, output
                assert "nothing is half-written" in output
        found = load(environ=environ).settings
        with Warehouse.open(found) as lake:
            assert lake.query("SELECT count(*) AS n FROM sample").to_pylist()[0]["n"] > 0


def test_a_second_role_at_an_embedded_warehouse_is_told_what_it_needs(
    settings: Settings,
) -> None:
    service = settings.service.model_copy(update={"listen": "127.0.0.1:0"})
    local = settings.model_copy(update={"service": service})
    with (
        Warehouse.open(settings, write=True),
        pytest.raises(
            UsageError, match=f"analyzer cannot share .* process {os.getpid()}"
        ) as result,
    ):
        serve(local, roles=[ServiceRole.analyzer])
    assert result.value.hint is not None
    assert "warehouse.catalog" in result.value.hint


def test_a_role_that_is_none_is_refused_with_the_legal_ones(tmp_path: Path) -> None:
    with up(tmp_path, "--role", "janitor") as process:
        output = rest(process)
        assert process.wait(60) == 2
    assert "'collector', 'analyzer', 'actor', 'dashboard', 'all'" in output


def test_it_is_ready_when_open_when_all_went_well_and_while_nothing_is_late() -> None:
    now = [NOW]
    ready = Readiness(timedelta(minutes=10), lambda: now[0])
    assert ready.why_not() == ["the warehouse is not open yet"]
    jobs = [
        ServiceJob(n, timedelta(minutes=1), lambda: None, ServiceRole.collector) for n in ("a", "b")
    ]
    ready.expects(jobs)
    ready.went_well("a")
    assert ready.why_not() == ["b: its first turn is still to go well"]
    ready.went_well("b")
    now[0] += timedelta(minutes=13)
    assert ready.why_not() == []
    ready.went_well("b")
    now[0] += timedelta(seconds=1)
    assert ready.why_not() == ["a: no turn went well since 2026-11-20 12:00:00 UTC"]


def test_an_up_that_runs_says_so_over_http(tmp_path: Path, exporter: Exporter) -> None:
    exporter.labels = {"node": "n1", "space": "a", "pod": "p"}
    environ = {
        "FALLOW_HOME": str(tmp_path / "home"),
        "FALLOW_EXPORTERS__TARGETS": f'["{exporter.url}"]',
    }
    with up(tmp_path, "--role", "collector", **environ) as process:
        url = f"http://{until(process, 'up')['listen']}"
        line = until(process, "maintained")
        assert (line["moved_files"], line["moved_rows"], line["moved_bytes"]) == (0, 0, 0)
        while (output := answer(f"{url}/readyz")) != (200, "ready\n"):
            # The turn is over a moment after its log.
            assert output == (503, "not ready\nmaintain: its first turn is still to go well\n")
        _, result = answer(f"{url}/metrics")
    assert "fallow_ready 1.0" in result
    assert 'fallow_info{role="collector",version="' in result
    assert 'fallow_targets{collector="exporters",state="up"} 1.0' in result
    assert "fallow_act" not in result  # another process's
