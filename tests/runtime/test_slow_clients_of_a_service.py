"""A service of 256 descriptors beside 60 clients that send a byte every two seconds."""

import os
import re
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.runtime.test_service import ROLES
from tests.runtime.test_service import exporter as exporter  # noqa: PLC0414  (a fixture)

CLIENTS, DESCRIPTORS, EVERY_S = 60, 256, 2.0
WATCH_S = 10.0
WAIT_S = 120.0
MOST_END_S = 5.0
"""From the last answer to the process's end."""
REQUEST = b"GET /metrics HTTP/1.1\r\nX-Slow: " + b"y" * 999


@contextmanager
def dripping_clients(port: int) -> Iterator[list[int]]:
    """Keep so many connections that send their request byte by byte; count those begun."""
    ending, begun = threading.Event(), [0]

    def drip() -> None:
        while not ending.is_set():
            with suppress(OSError), socket.create_connection(("127.0.0.1", port)) as connection:
                begun[0] += 1
                for byte in REQUEST:
                    connection.sendall(bytes([byte]))
                    if ending.wait(EVERY_S):
                        return

    threads = [threading.Thread(target=drip) for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    try:
        yield begun
    finally:
        ending.set()
        for thread in threads:
            thread.join()


def limit_descriptors() -> None:
    """Run in the service's process before it starts."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))


# Cheaper: test_endpoint.py, without a service's jobs.
@pytest.mark.long
def test_health_answers_jobs_go_on_and_the_end_is_no_later(exporter: str, tmp_path: Path) -> None:
    environ = {k: v for k, v in os.environ.items() if not k.startswith("FALLOW_")} | {
        "FALLOW_HOME": str(tmp_path / "home"),
        "FALLOW_EXPORTERS__TARGETS": f'["{exporter}"]',
        "FALLOW_SERVICE__COLLECT_EVERY": "1s",
        "PYTHONPATH": str(Path(__file__).resolve().parents[2]),
    }
    command = [sys.executable, "-c", "from runtime.cli import main; main()", "up"]
    log = tmp_path / "log"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    def get(path: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=WAIT_S) as answer:
            return str(answer.read().decode())

    def count(metric: str) -> float:
        rows = re.findall(rf"^{metric}{{[^}}]*}} (\S+)$", get("/metrics"), re.MULTILINE)
        return sum(map(float, rows))

    with (
        log.open("w") as file,
        subprocess.Popen(
            [*command, "--listen", f"127.0.0.1:{port}", *ROLES],
            env=environ, cwd=tmp_path, stdout=file, stderr=file,
            preexec_fn=limit_descriptors,  # noqa: PLW1509  (no thread runs here yet)
        ) as service,
    ):  # fmt: skip
        try:
            deadline = time.monotonic() + WAIT_S
            while '"collected"' not in log.read_text():
                assert time.monotonic() < deadline, log.read_text()
                time.sleep(0.1)
            turns = count("fallow_job_duration_seconds_count")
            with dripping_clients(port) as begun:
                deadline = time.monotonic() + WATCH_S
                answers = 0
                while time.monotonic() < deadline:
                    assert get("/healthz") == "ok\n"
                    answers += 1
                    time.sleep(0.2)
                assert begun[0] >= CLIENTS
                assert answers >= WATCH_S / 4
                assert count("fallow_job_duration_seconds_count") > turns
                assert count("fallow_job_failures_total") == 0
                service.send_signal(signal.SIGTERM)
                answered = time.monotonic()
                while service.poll() is None:  # it answers until its jobs are done
                    assert time.monotonic() < answered + MOST_END_S, log.read_text()
                    with suppress(OSError):
                        get("/healthz")
                        answered = time.monotonic()
                    time.sleep(0.05)
        finally:
            service.kill()
    assert service.returncode == 0
    text = log.read_text()
    assert "nothing is half-written" in text
    assert "Too many open files" not in text
