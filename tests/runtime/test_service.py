"""The service: every job on its schedule, its own metrics, a stop that leaves nothing half-done."""

import logging
import os
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from dashboards.figures import analysis_runs
from fallow.errors import SourceError, UsageError
from fallow.settings import Settings
from fallow.tables import Batch
from fallow.window import Window
from runtime.operations.ingestion import plugin_runs
from runtime.service.endpoint import Endpoint
from runtime.service.jobs import ServiceLoop
from runtime.service.metrics import SelfMetrics
from warehouse.lake import Warehouse

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
TEXT = (
    'DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-1",modelName="NVIDIA H100 80GB HBM3",Hostname="n1"} 5\n'
)


ROLES = ("--role", "collector", "--role", "analyzer", "--role", "actor")
"""All but the dashboard, which is tested as a process beside."""


class Looking:
    """A collector that gives one look per call, or fails."""

    def __init__(self, *, failing: bool = False) -> None:
        self.windows: list[Window] = []
        self.failing = failing

    def collect(self, window: Window) -> Iterator[Batch]:
        self.windows.append(window)
        if self.failing:
            raise SourceError("away")
        naive = [window.end.replace(tzinfo=None)]
        data: dict[str, object] = {
            "cluster": ["test"], "ts": naive, "device": ["GPU-1"], "interval_s": [60.0],
            "gpu_util_pct": [5.0], "node": ["n1"],
        }  # fmt: skip
        yield Batch.of("sample", data)


def test_a_collector_that_fails_is_counted_and_stops_nobody(settings: Settings) -> None:
    good, bad = Looking(), Looking(failing=True)
    metrics = SelfMetrics()
    instants = iter([NOW, NOW + timedelta(minutes=1), NOW + timedelta(minutes=5)])
    with Warehouse.open(settings, write=True, clock=lambda: NOW + timedelta(hours=1)) as warehouse:
        service = ServiceLoop(
            warehouse,
            settings,
            collectors={"bad": bad, "good": good},
            analyzers={},
            metrics=metrics,
            clock=lambda: next(instants),
        )
        service.collect()
        service.collect()
        service.account()
        stored = warehouse.query("SELECT count(*) AS n FROM sample").to_pylist()[0]["n"]
        devices = warehouse.query("SELECT device FROM device").to_pylist()
    assert stored == 2
    assert devices == [{"device": "GPU-1"}]
    text = metrics.text().decode()
    assert 'fallow_up{collector="good"} 1.0' in text
    assert 'fallow_up{collector="bad"} 0.0' in text
    assert 'fallow_collect_rows_total{collector="good"} 2.0' in text
    # A source that was away is asked for what it missed; others only for what is new.
    assert good.windows[1].start <= NOW
    assert bad.windows[1].start <= NOW


class Broken:
    """A collector with a fault of its own; healed, it gives nothing."""

    def __init__(self) -> None:
        self.healed = False

    def collect(self, window: Window) -> Iterator[Batch]:
        if not self.healed:
            raise ZeroDivisionError(f"division by zero until {window.end}")
        yield from ()


def test_a_fault_in_a_collector_ends_only_itself_and_is_seen_until_it_is_over(
    settings: Settings, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("fallow"), "propagate", True)
    good, broken, metrics = Looking(), Broken(), SelfMetrics()
    with Warehouse.open(settings, write=True, clock=lambda: NOW + timedelta(hours=1)) as warehouse:
        service = ServiceLoop(
            warehouse,
            settings,
            collectors={"broken": broken, "good": good},
            analyzers={},
            metrics=metrics,
            clock=lambda: NOW,
        )
        service.collect()
        assert len(good.windows) == 1, "the one beside it was asked"
        (record,) = [r for r in caplog.records if r.name == "fallow.plugins"]
        assert record.exc_info is not None
        assert record.exc_info[0] is ZeroDivisionError
        assert record.__dict__["collector"] == "broken"
        text = metrics.text().decode()
        assert 'fallow_plugin_up{kind="collector",plugin="broken"} 0.0' in text
        assert 'fallow_plugin_up{kind="collector",plugin="good"} 1.0' in text
        assert 'fallow_up{collector="broken"} 0.0' in text
        (row,) = plugin_runs.check_plugins(warehouse)
        assert (row.check, row.status) == ("collector broken", "bad")
        assert "ZeroDivisionError: division by zero until" in row.finding
        (fault,) = analysis_runs.read_faults(warehouse)
        assert analysis_runs.read_fault(fault).startswith(
            "The collector broken of cluster test is left out"
        )

        broken.healed = True
        later = NOW + timedelta(minutes=1)
        again = ServiceLoop(  # another process: what the one before stored is known to it
            warehouse,
            settings,
            collectors={"broken": broken},
            analyzers={},
            metrics=metrics,
            clock=lambda: later,
        )
        again.collect()
        assert plugin_runs.check_plugins(warehouse) == []
        assert analysis_runs.read_faults(warehouse) == ()
    assert 'fallow_plugin_up{kind="collector",plugin="broken"} 1.0' in metrics.text().decode()


def test_a_service_that_was_down_asks_for_the_time_it_missed(settings: Settings) -> None:
    looking = Looking()
    stopped = NOW - timedelta(hours=9)
    with Warehouse.open(settings, write=True, clock=lambda: NOW) as warehouse:
        service = ServiceLoop(
            warehouse,
            settings,
            collectors={"prometheus": looking},
            analyzers={},
            metrics=SelfMetrics(),
            clock=lambda: NOW,
            since={"prometheus": stopped},
        )
        service.collect()
        service.collect()
    assert [w.start for w in looking.windows] == [stopped, NOW - settings.service.collect_every]


def test_metrics_and_health_are_answered_and_nothing_else() -> None:
    with Endpoint("127.0.0.1:0", SelfMetrics()) as endpoint:
        url = f"http://{endpoint.address}"
        with urllib.request.urlopen(f"{url}/healthz") as answer:
            assert answer.read() == b"ok\n"
        with urllib.request.urlopen(f"{url}/metrics") as answer:
            assert b"# TYPE fallow_up gauge" in answer.read()
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(f"{url}/secrets")
        assert caught.value.code == 404
        caught.value.close()


@pytest.mark.parametrize("listen", ["nowhere", ":", "127.0.0.1:port"])
def test_an_address_that_is_none_is_refused(listen: str) -> None:
    with pytest.raises(UsageError, match="host:port"):
        Endpoint(listen, SelfMetrics())


@pytest.fixture
def exporter() -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(TEXT)))
            self.end_headers()
            self.wfile.write(TEXT.encode())

        def log_message(self, *_args: object) -> None:
            """Keep quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/metrics"
        server.shutdown()


# SIGTERM: tests/runtime/test_sources.py and tests/deploy/test_read_only_root.py.
@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.long)]
)
def test_up_collects_and_stops_gracefully(
    exporter: str, tmp_path: Path, number: signal.Signals
) -> None:
    environ = {k: v for k, v in os.environ.items() if not k.startswith("FALLOW_")} | {
        "FALLOW_HOME": str(tmp_path / "home"),
        "FALLOW_EXPORTERS__TARGETS": f'["{exporter}"]',
        "FALLOW_SERVICE__COLLECT_EVERY": "1s",
        "PYTHONPATH": str(Path(__file__).resolve().parents[2]),
    }
    command = [sys.executable, "-c", "from runtime.cli import main; main()", "up"]
    with subprocess.Popen(
        [*command, "--listen", "127.0.0.1:0", *ROLES],
        env=environ,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as service:
        assert service.stderr is not None
        watchdog = threading.Timer(90, service.kill)
        watchdog.start()
        seen = ""
        for line in service.stderr:
            seen += line
            if '"collected"' in line:
                break
        service.send_signal(number)
        seen += service.stderr.read()
        assert service.wait(60) == 0, seen
        watchdog.cancel()
    assert "nothing is half-written" in seen
    from fallow.settings import load  # noqa: PLC0415  (read back by the test itself)

    found = load(environ={"FALLOW_HOME": str(tmp_path / "home")}).settings
    with Warehouse.open(found) as warehouse:
        assert warehouse.query("SELECT count(*) AS n FROM sample").to_pylist()[0]["n"] >= 1
