"""Run the dashboard as a process beside the service: start, restart and stop it."""

import importlib.util
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Self

from runtime.service.child_log import copy_output

log = logging.getLogger("fallow.dashboard")

_START = (
    "from runtime.service.parent_process import end_with_parent; end_with_parent(); "
    "from runtime.cli import main; main()"
)
COMMAND = (sys.executable, "-c", _START, "dashboard")
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0
STDERR = 2
STOP_S = 10.0
"""How long it may take to end before it is killed; it writes nothing, so a kill does no harm."""
LAST_LINES_S = 5.0
"""How long its last lines are waited for; what it left behind may hold its output open."""


def explain_missing_dashboard() -> str | None:
    """Return why there is no dashboard to start; None = there is."""
    for name, why in (
        ("runtime.cli.dashboard", "this version has none"),
        ("streamlit", "install fallow[dashboards]"),
    ):
        if importlib.util.find_spec(name) is None:
            return why
    return None


class DashboardProcess:
    """One process that has to run as long as this one."""

    def __init__(
        self,
        command: Sequence[str],
        environ: Mapping[str, str],
        on_change: Callable[[bool], None],
        *,
        pause_s: float = FIRST_PAUSE_S,
    ) -> None:
        self._command, self._environ, self._on_change = list(command), dict(environ), on_change
        self._pause_s = pause_s
        self._ending = threading.Event()
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        """Start it."""
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop it, with all processes that it started."""
        self._ending.set()
        with self._lock:
            running = self._process
        if running is not None:
            self._signal(running, signal.SIGTERM)
            try:
                running.wait(STOP_S)
            except subprocess.TimeoutExpired:
                log.warning("killed: it did not end when asked", extra={"seconds": STOP_S})
            self._signal(running, signal.SIGKILL)  # the processes that it left behind, too
        self._thread.join()

    @property
    def runs(self) -> bool:
        """Return whether the process runs now."""
        with self._lock:
            return self._process is not None and self._process.poll() is None

    def _watch(self) -> None:
        pause = self._pause_s
        # On a terminal people read its text; everywhere else the log is JSON lines, all of it.
        output = STDERR if sys.stderr.isatty() else subprocess.PIPE
        while True:
            with self._lock:
                if self._ending.is_set():
                    return
                self._process = subprocess.Popen(  # noqa: S603  (our own command)
                    self._command,
                    env={**os.environ, **self._environ},
                    stdin=subprocess.PIPE,  # it ends when we do, also when we are killed
                    stdout=output,  # our stdout is data
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            reader = self._start_reader(self._process)
            self._on_change(True)
            code = self._process.wait()
            if reader is not None:
                reader.join(LAST_LINES_S)
            if self._process.stdin is not None:
                self._process.stdin.close()
            self._on_change(False)
            if self._ending.is_set():
                return
            log.error("ended, will be started again", extra={"code": code, "in_s": pause})
            self._ending.wait(pause)
            pause = min(2 * pause, LONGEST_PAUSE_S)

    @staticmethod
    def _start_reader(process: "subprocess.Popen[bytes]") -> threading.Thread | None:
        if process.stdout is None:
            return None
        reader = threading.Thread(target=copy_output, args=(process.stdout,), daemon=True)
        reader.start()
        return reader

    @staticmethod
    def _signal(process: "subprocess.Popen[bytes]", number: signal.Signals) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
