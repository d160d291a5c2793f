"""`fallow dashboard` as a process of its own on a free port, and what it has used."""

import os
import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

START_S = 240
STOPPED = re.compile(r"^streamlit\.[\w.]+\.StopException$", re.MULTILINE)
"""How the traceback ends of a timer of Streamlit that meant to draw on a page which had been left.
Several timers may write at once: their lines stay whole, the order between them does not."""
COMMAND = (sys.executable, "-c", "from runtime.cli import main; main()", "dashboard")


def free_port() -> int:
    """Return a port of loopback that nobody holds at this moment."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


@contextmanager
def dashboard(folder: Path, settings: Mapping[str, object], port: int) -> Iterator[str]:
    """Run the dashboard with these settings until the block ends; yields its URL.

    Its log is `folder/log`; in the end no traceback may stand there.
    """
    file, log = folder / "fallow.yaml", folder / "log"
    file.write_text(yaml.safe_dump(dict(settings)), encoding="utf-8")
    words = [*COMMAND, "--config", str(file), "--listen", f"127.0.0.1:{port}"]
    environ = {k: v for k, v in os.environ.items() if not k.startswith(("FALLOW_", "STREAMLIT_"))}
    url = f"http://127.0.0.1:{port}"
    with (
        log.open("wb") as err,
        subprocess.Popen(words, cwd=folder, env=environ, stdout=err, stderr=err) as process,
    ):
        try:
            _await(process, f"{url}/_stcore/health", log)
            yield url
        finally:
            process.terminate()
    text = log.read_text(encoding="utf-8")
    assert faults(text) == 0, text[-4000:]


def faults(said: str) -> int:
    """Return how many tracebacks a log has beside those of Streamlit's own timers."""
    return said.count("Traceback (most recent call last)") - len(STOPPED.findall(said))


def _await(process: "subprocess.Popen[bytes]", url: str, log: Path) -> None:
    until = time.monotonic() + START_S
    while time.monotonic() < until:
        if process.poll() is not None:
            pytest.fail(f"the dashboard ended: {log.read_text(encoding='utf-8')[-2000:]}")
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            try:
                process.wait(0.2)
            except subprocess.TimeoutExpired:
                continue
    pytest.fail(f"nothing answered at {url} in {START_S} s")
