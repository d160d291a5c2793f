"""The dashboard's process: started with the service, started again, gone with it."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from runtime.service.dashboard_process import DashboardProcess

LONG = "import time; time.sleep(600)"
DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); " + LONG


class Heard:
    """What was told, and a way to wait for it."""

    def __init__(self, starts: int) -> None:
        self.told: list[bool] = []
        self._starts, self.enough = starts, threading.Event()

    def __call__(self, up: bool) -> None:
        self.told.append(up)
        if self.told.count(True) >= self._starts:
            self.enough.set()


def test_it_is_started_and_gone_with_all_that_it_started(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    grandchild = (
        "import os, subprocess, sys; "
        f"p = subprocess.Popen([sys.executable, '-c', {LONG!r}]); "
        "open(os.environ['PIDS'], 'w').write(f'{os.getpid()} {p.pid}'); p.wait()"
    )
    heard = Heard(1)
    with DashboardProcess([sys.executable, "-c", grandchild], {"PIDS": str(pids)}, heard) as child:
        assert heard.enough.wait(60)
        while not (pids.exists() and pids.read_text()):
            assert child.runs
        found = [int(pid) for pid in pids.read_text().split()]
    assert not child.runs
    assert heard.told == [True, False]
    deadline = time.monotonic() + 60
    while any(alive(pid) for pid in found):  # the kernel's kill is on its way
        assert time.monotonic() < deadline


def alive(pid: int) -> bool:
    """Say whether a process runs; what ended and nobody waited for does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def test_one_that_ends_is_started_again() -> None:
    heard = Heard(3)
    with DashboardProcess([sys.executable, "-c", "raise SystemExit(3)"], {}, heard, pause_s=0.001):
        assert heard.enough.wait(60)
    assert heard.told[:5] == [True, False, True, False, True]


def test_one_that_does_not_listen_is_killed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("runtime.service.dashboard_process.STOP_S", 0.1)
    heard = Heard(1)
    with DashboardProcess([sys.executable, "-c", DEAF], {}, heard) as child:
        assert heard.enough.wait(60)
        pid = child._process.pid if child._process else 0
        while _catches(pid) != "ignored":
            assert child.runs
    assert not child.runs
    assert "killed: it did not end when asked" in caplog.messages


def _catches(pid: int) -> str:
    status = Path(f"/proc/{pid}/status").read_text()
    mask = next(line for line in status.splitlines() if line.startswith("SigIgn"))
    return "ignored" if int(mask.split()[1], 16) & 1 << 14 else ""


def test_it_ends_when_the_service_is_killed(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    child = (
        "from runtime.service.parent_process import end_with_parent; end_with_parent(); "
        f"import os; open({str(pid_file)!r}, 'w').write(str(os.getpid())); {LONG}"
    )
    service = (
        "import sys, time; from runtime.service.dashboard_process import DashboardProcess\n"
        f"with DashboardProcess([sys.executable, '-c', {child!r}], {{}}, lambda up: None):\n"
        "    time.sleep(600)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", service], cwd=Path(__file__).parents[2], env={**os.environ}
    )
    deadline = time.monotonic() + 60
    while not (pid_file.exists() and pid_file.read_text()):
        assert process.poll() is None
        assert time.monotonic() < deadline
    pid = int(pid_file.read_text())
    assert alive(pid)
    process.kill()
    process.wait()
    while alive(pid):
        assert time.monotonic() < deadline
