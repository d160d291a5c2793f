"""Every line of the service's log is JSON, whoever wrote it."""

import io
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from runtime.service.child_log import KEYS, copy_output, is_event
from tests.dashboards.test_process import answer

ROOT = Path(__file__).resolve().parents[2]
CHILD = """
import os, sys
print("You can now view your app", flush=True)
print(flush=True)
os.write(2, b"text of a library \\xff\\n")
raise ZeroDivisionError("of the child")
"""
SERVICE = f"""
import sys, threading, warnings
from runtime.cli.logs import configure
from runtime.service.dashboard_process import DashboardProcess
from runtime.service.uncaught import log_uncaught

class Finalized:
    def __del__(self):
        raise ValueError("of a finalizer")

configure()
log_uncaught()
warnings.warn("of a library", stacklevel=1)
thread = threading.Thread(target=lambda: 1 / 0, name="divider")
thread.start()
thread.join()
Finalized()
ended = threading.Event()
command = [sys.executable, "-c", {CHILD!r}]
with DashboardProcess(command, {{}}, lambda up: up or ended.set(), pause_s=600):
    assert ended.wait(60)
"""


def parse(text: str) -> list[dict[str, Any]]:
    """Return the events of a log; every line has to be one."""
    events = [json.loads(line) for line in text.splitlines()]
    assert all(event.keys() >= KEYS for event in events), text
    return events


def test_text_warnings_and_uncaught_exceptions_are_events_of_the_log() -> None:
    run = subprocess.run(
        [sys.executable, "-c", SERVICE],
        check=True, capture_output=True, text=True, cwd=ROOT, env={**os.environ},
    )  # fmt: skip
    assert run.stdout == ""
    events = parse(run.stderr)
    of_child = [e["event"] for e in events if e["logger"] == "fallow.dashboard.output"]
    assert of_child[-1] == "ZeroDivisionError: of the child"
    assert {"You can now view your app", "Traceback (most recent call last):"} <= {*of_child}
    assert any("of a library" in e["event"] for e in events if e["logger"] == "py.warnings")
    in_thread, in_finalizer = (e for e in events if e["logger"] == "fallow.uncaught")
    assert (in_thread["level"], in_thread["in_thread"]) == ("error", "divider")
    assert in_thread["exception"][0]["exc_type"] == "ZeroDivisionError"
    assert in_finalizer["exception"][0]["exc_value"] == "of a finalizer"


def test_events_of_the_child_are_copied_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    event = '{"event": "up", "level": "info", "timestamp": "2026-11-20", "logger": "fallow"}'
    copy_output(io.BytesIO(event.encode()))
    assert capsys.readouterr().err == event + "\n"


@pytest.mark.parametrize("text", ['{"event": "up"}', "[1]", "7", "{", "[" * 100_000])
def test_other_text_is_no_event(text: str) -> None:
    assert not is_event(text)


# test_text_warnings_and_uncaught_exceptions_are_events_of_the_log: the same with a smaller child.
@pytest.mark.long
def test_every_line_of_a_service_with_a_dashboard_is_json(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        listen = f"127.0.0.1:{free.getsockname()[1]}"
    with socket.create_server(("127.0.0.1", 0)) as away:
        target = f"http://127.0.0.1:{away.getsockname()[1]}/metrics"
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("FALLOW_", "STREAMLIT_"))}
    environ = {
        **kept,
        "PYTHONPATH": str(ROOT),
        "FALLOW_HOME": str(tmp_path / "home"),
        "FALLOW_EXPORTERS__TARGETS": json.dumps([target]),
        "FALLOW_DASHBOARD__LISTEN": listen,
        "FALLOW_SERVICE__LISTEN": "127.0.0.1:0",
    }
    words = [sys.executable, "-c", "from runtime.cli import main; main()", "up"]
    log = tmp_path / "log"
    with (
        log.open("wb") as output,
        subprocess.Popen(
            words, cwd=tmp_path, env=environ, stdout=subprocess.DEVNULL, stderr=output
        ) as process,
    ):
        watchdog = threading.Timer(300, process.kill)
        watchdog.start()
        try:
            assert b"Streamlit" in answer(process, f"http://{listen}/")
        finally:
            process.send_signal(signal.SIGTERM)
            code = process.wait()
            watchdog.cancel()
    assert code == 0
    events = [event["event"] for event in parse(log.read_text())]
    assert any("Streamlit app" in str(event) for event in events)
    assert events[-1] == "stopped; nothing is half-written"
