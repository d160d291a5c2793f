"""`fallow dashboard` as people start it: it answers, and it stops when told."""

import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from email.message import Message
from pathlib import Path

import pytest

from fallow.settings import Settings
from tests.queries_without_end import QUERIES_WITHOUT_END

pytestmark = pytest.mark.xdist_group("pages")  # the demo's fleet is played once

START_S = 120
REQUESTS = (
    ("GET", "/"),
    ("GET", "/spend"),
    ("GET", "/favicon.png"),
    ("GET", "/_stcore/health"),
    ("GET", "/_stcore/host-config"),
    ("GET", "/media/none.csv"),
    ("GET", "/static/js/none.js"),
    ("GET", "/..%2f..%2fetc/passwd"),
    ("POST", "/"),
    ("GET", "/oauth2callback"),
)
"""Pages, files, answers of the server's own and refusals."""
COMMAND = (sys.executable, "-c", "from runtime.cli import main; main()", "dashboard")


def test_dashboard_answers_on_loopback_and_stops_when_told(fleet: Settings, tmp_path: Path) -> None:
    port = find_free_port()
    words = [*COMMAND, "--home", str(fleet.home), "--listen", f"127.0.0.1:{port}"]
    environ = {k: v for k, v in os.environ.items() if not k.startswith(("FALLOW_", "STREAMLIT_"))}
    log = tmp_path / "log"
    with (
        log.open("wb") as err,
        subprocess.Popen(words, cwd=tmp_path, env=environ, stdout=err, stderr=err) as process,
    ):
        try:
            assert answer(process, f"http://127.0.0.1:{port}/_stcore/health") == b"ok"
            assert b"Streamlit" in answer(process, f"http://127.0.0.1:{port}/")
            for method, path in REQUESTS:
                headers = ask(f"http://127.0.0.1:{port}{path}", method)
                assert "frame-ancestors 'none'" in headers["Content-Security-Policy"], path
                assert headers["X-Frame-Options"] == "DENY", path
            for origin, code in {
                "": 101, f"http://127.0.0.1:{port}": 101, f"http://127.0.0.1:{port - 1}": 403,
                f"http://localhost:{port}": 403, "http://127.0.0.1": 403, "null": 403,
            }.items():  # fmt: skip
                assert open_stream(port, origin) == code, origin
                if code == 403:
                    assert open_stream(port, origin, "PUT") == code, origin
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    text = log.read_text()
    assert f"http://127.0.0.1:{port}" in text
    assert "this machine only" in text
    assert "Traceback" not in text


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_amid_a_query_is_a_normal_end(number: signal.Signals, tmp_path: Path) -> None:
    port = find_free_port()
    words = [sys.executable, "-c", QUERIES_WITHOUT_END, *COMMAND[3:], "--home", str(tmp_path)]
    words += ["--listen", f"127.0.0.1:{port}"]
    log = tmp_path / "log"
    with log.open("wb") as err, subprocess.Popen(words, stdout=err, stderr=err) as process:
        try:
            assert answer(process, f"http://127.0.0.1:{port}/_stcore/health") == b"ok"
        finally:
            process.send_signal(number)
        assert process.wait(60) == 0, log.read_text()
    assert "The pages are stopped." in log.read_text()


def open_stream(port: int, origin: str, method: str = "GET") -> int:
    """Open the WebSocket of a page of an origin, as a browser does; return the answer's code."""
    head = {
        "Host": f"127.0.0.1:{port}", "Connection": "Upgrade", "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
        **({"Origin": origin} if origin else {}),
    }  # fmt: skip
    if method != "GET":
        head |= {"Connection": "close", "Upgrade": "", "Content-Length": "0"}
    lines = [f"{method} /_stcore/stream HTTP/1.1", *(f"{k}: {v}" for k, v in head.items() if v)]
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        connection.sendall("\r\n".join([*lines, "", ""]).encode())
        return int(connection.recv(64).split()[1])


def find_free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port


def ask(url: str, method: str) -> Message:
    """Return the headers of an answer, also of a refusal."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=30) as got:
            headers: Message = got.headers
            return headers
    except urllib.error.HTTPError as refusal:
        with refusal:
            return refusal.headers


def answer(process: "subprocess.Popen[bytes]", url: str) -> bytes:
    """Return what is answered, once anything answers there."""
    for _ in range(START_S * 5):
        if process.poll() is not None:
            pytest.fail(f"it ended with {process.returncode}")
        try:
            with urllib.request.urlopen(url, timeout=5) as response:
                return bytes(response.read())
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            try:
                process.wait(0.2)
            except subprocess.TimeoutExpired:
                continue
    pytest.fail(f"nothing answered at {url} in {START_S} s")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--listen", "0.0.0.0:8501"], "this machine only, not on 0.0.0.0"),
        (["--listen", "nowhere"], "no host:port"),
    ],
)
def test_address_that_is_not_allowed_ends_at_once(
    words: list[str], said: str, tmp_path: Path
) -> None:
    run = subprocess.run(
        [*COMMAND, "--home", str(tmp_path), *words], check=False, capture_output=True, text=True
    )
    assert run.returncode == 2
    assert said in run.stderr
    assert "Traceback" not in run.stderr
