"""A total deadline and a size hold whatever the server does: drip, redirect, never end, explode."""

import gzip
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest
import urllib3

from fallow.system.deadlines import (
    BodyTooLargeError,
    Deadline,
    DeadlineExceededError,
    read_body,
    watch_connections,
)

LIMIT_S = 0.4
SLACK_S = 3.0
"""A machine under load may be late by this much; a dripping server would take minutes."""
Script = Callable[[socket.socket, threading.Event], None]


@contextmanager
def serve(script: Script) -> Iterator[str]:
    """Run a server that answers each connection by a script, on loopback."""
    stop = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.1)

        def accept() -> None:
            while not stop.is_set():
                try:
                    connection, _ = server.accept()
                except TimeoutError:
                    continue
                except OSError:
                    return
                threading.Thread(target=answer, args=(connection,), daemon=True).start()

        def answer(connection: socket.socket) -> None:
            with connection, suppress(OSError):
                connection.settimeout(5)
                script(connection, stop)

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.getsockname()[1]}/"
        finally:
            stop.set()
            thread.join()


def drip(text: bytes) -> Script:
    """Send a beginning at once, then one byte every 50 ms without end."""

    def script(connection: socket.socket, stop: threading.Event) -> None:
        connection.recv(65536)
        connection.sendall(text)
        while not stop.wait(0.05):
            connection.sendall(b"x")

    return script


def redirect(connection: socket.socket, stop: threading.Event) -> None:
    """Redirect to the same address, for ever, after a moment each."""
    while not stop.wait(0.05):
        if not connection.recv(65536):
            return
        connection.sendall(b"HTTP/1.1 302 F\r\nLocation: /\r\nContent-Length: 0\r\n\r\n")


def wait(connection: socket.socket, stop: threading.Event) -> None:
    """Take the request and send nothing."""
    connection.recv(9)
    stop.wait()


def fetch(
    url: str, *, within_s: float = LIMIT_S, limit: int = 1 << 20, redirects: int = 3
) -> bytes:
    pools = watch_connections(urllib3.PoolManager(timeout=5.0))
    retries = urllib3.Retry(total=None, redirect=redirects, connect=0, read=0)
    with Deadline(within_s):
        response = pools.request("GET", url, preload_content=False, retries=retries)
        return read_body(response, limit=limit)


HEADER = b"HTTP/1.1 200 OK\r\n"
SLOW = {
    "in its status line": drip(b"HTTP/1.1 200 "),
    "in its headers": drip(HEADER + b"X-Slow: "),
    "in a body of known length": drip(HEADER + b"Content-Length: 1000000\r\n\r\n"),
    "in a body without length": drip(HEADER + b"Connection: close\r\n\r\n"),
    "in a chunk that never ends": drip(HEADER + b"Transfer-Encoding: chunked\r\n\r\nFFFFF\r\n"),
    "by redirects": redirect,
    "before its first byte": wait,
}


@pytest.mark.parametrize("script", SLOW.values(), ids=SLOW.keys())
def test_a_server_that_never_ends_is_left_at_the_deadline(script: Script) -> None:
    began = time.monotonic()
    with serve(script) as url, pytest.raises(DeadlineExceededError, match=r"within 0\.4 s"):
        fetch(url, redirects=10**6)
    assert LIMIT_S <= time.monotonic() - began < LIMIT_S + SLACK_S


def test_the_handshake_of_tls_is_inside_the_deadline() -> None:
    with serve(drip(b"\x16\x03\x03\x40\x00")) as url:
        pools = watch_connections(urllib3.PoolManager(timeout=60.0, cert_reqs=ssl.CERT_NONE))
        with pytest.raises(DeadlineExceededError), Deadline(LIMIT_S):
            pools.request("GET", url.replace("http", "https"), retries=False)


def test_a_connection_of_before_comes_under_the_new_deadline() -> None:
    answers = iter([HEADER + b"Content-Length: 2\r\n\r\nok", HEADER + b"Content-Length: 9\r\n\r\n"])

    def script(connection: socket.socket, stop: threading.Event) -> None:
        while connection.recv(65536):
            connection.sendall(next(answers))
        stop.wait()

    pools = watch_connections(urllib3.PoolManager(timeout=60.0))
    with serve(script) as url:
        with Deadline(60.0):
            assert pools.request("GET", url).data == b"ok"
        with pytest.raises(DeadlineExceededError), Deadline(LIMIT_S):
            pools.request("GET", url, retries=False)


def test_a_compressed_bomb_stops_at_the_limit() -> None:
    bomb = gzip.compress(bytes(64 << 20), 9)

    def script(connection: socket.socket, stop: threading.Event) -> None:
        connection.recv(65536)
        head = HEADER + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(bomb)
        connection.sendall(head + bomb)
        stop.wait()

    with serve(script) as url:
        with pytest.raises(BodyTooLargeError, match="larger than 1,048,576 bytes"):
            fetch(url, within_s=60)
        assert len(fetch(url, within_s=60, limit=64 << 20)) == 64 << 20


def test_an_answer_in_time_is_not_touched() -> None:
    def script(connection: socket.socket, stop: threading.Event) -> None:  # noqa: ARG001
        connection.recv(65536)
        connection.sendall(HEADER + b"Content-Length: 5\r\n\r\nhello")

    with serve(script) as url:
        assert fetch(url) == b"hello"
        assert threading.active_count() < 50
