"""The service's address under clients that are slow, many or malformed: bounded, and in words."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from runtime.service import endpoint as endpoint_module
from runtime.service.api import MOST_BYTES, WriteApi
from runtime.service.endpoint import MOST_AT_WORK, MOST_CONNECTIONS, Endpoint
from runtime.service.metrics import SelfMetrics

SLOW = 60
BIG = b"x" * (16 << 20)
WAIT_S = 20.0


def send(endpoint: Endpoint, request: bytes, *, end: bool = False) -> bytes:
    """Send bytes and return the whole answer; `end`: nothing more will be sent."""
    host, _, port = endpoint.address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=WAIT_S) as connection:
        connection.sendall(request)
        if end:
            connection.shutdown(socket.SHUT_WR)
        return connection.makefile("rb").read()


def get(endpoint: Endpoint, path: str) -> bytes:
    return send(endpoint, f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())


def post(path: str = "/v1/keep") -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    return head.encode() + b"Content-Length: 2\r\n\r\n{}"


def list_threads() -> set[threading.Thread]:
    """Return the threads that answer requests, those of other servers too."""
    return {thread for thread in threading.enumerate() if "process_request" in thread.name}


def wait_for_threads(most: int, others: set[threading.Thread]) -> None:
    """Wait until at most so many requests have a thread: that of a closed connection ends soon."""
    deadline = time.monotonic() + WAIT_S
    while (count := len(list_threads() - others)) > most:
        assert time.monotonic() < deadline, count
        time.sleep(0.01)  # other threads end in their own time


@contextmanager
def slow_clients(endpoint: Endpoint, start: bytes) -> Iterator[list[socket.socket]]:
    """Open connections that begin a request, and neither end nor close it."""
    host, _, port = endpoint.address.rpartition(":")
    with ExitStack() as stack:
        clients = []
        for _ in range(SLOW):
            connection = socket.create_connection((host, int(port)), timeout=WAIT_S)
            clients.append(stack.enter_context(connection))
            connection.sendall(start)
        yield clients


STARTS = {
    "nothing": b"",
    "half a line": b"GET /hea",
    "headers": b"GET /healthz HTTP/1.1\r\nX-Slow: y\r\n",
    "a body": post()[:-2] + b"{",
}


@pytest.mark.parametrize("start", STARTS.values(), ids=STARTS.keys())
def test_slow_clients_hold_few_threads_and_hide_nothing(start: bytes) -> None:
    others = list_threads()
    with Endpoint("127.0.0.1:0", SelfMetrics()) as endpoint, slow_clients(endpoint, start):
        for path in ("/healthz", "/readyz", "/metrics"):
            assert b" 200 " in get(endpoint, path).partition(b"\r\n")[0]
        wait_for_threads(MOST_CONNECTIONS, others)
        began = time.monotonic()
        endpoint.close()
        assert time.monotonic() - began < 3
        wait_for_threads(0, others)


def test_a_request_has_one_time_limit_however_it_arrives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint_module, "REQUEST_TIMEOUT_S", 0.3)
    with (
        Endpoint("127.0.0.1:0", SelfMetrics()) as endpoint,
        socket.create_connection(("127.0.0.1", int(endpoint.address[10:]))) as client,
    ):
        client.settimeout(0.05)
        began = time.monotonic()
        ended = False
        while not ended and time.monotonic() - began < WAIT_S:
            try:
                client.sendall(b"G")
                ended = client.recv(1) == b""
            except TimeoutError:
                continue
            except OSError:
                ended = True
        assert ended
        assert b"ok" in get(endpoint, "/healthz")


class HeldApi(WriteApi):
    """An API whose requests take until they are let go."""

    def __init__(self) -> None:
        super().__init__("", loopback=True)
        self.began = threading.Semaphore(0)
        self.go = threading.Event()

    def answer(self, *_: object) -> tuple[int, dict[str, object]]:
        self.began.release()
        assert self.go.wait(WAIT_S)
        return 200, {"done": True}


def test_health_is_answered_while_every_request_is_at_work_and_each_of_them_too() -> None:
    api, answers = HeldApi(), list[bytes]()
    with ExitStack() as stack:
        endpoint = stack.enter_context(Endpoint("127.0.0.1:0", SelfMetrics(), api=api))
        threads = [
            threading.Thread(target=lambda: answers.append(send(endpoint, post())))
            for _ in range(MOST_AT_WORK)
        ]
        for thread in threads:
            thread.start()
        for _ in threads:
            assert api.began.acquire(timeout=WAIT_S)
        assert send(endpoint, post()).startswith(b"HTTP/1.0 503 ")
        with slow_clients(endpoint, b"GET /"):
            for path in ("/healthz", "/readyz"):
                assert b" 200 " in get(endpoint, path).partition(b"\r\n")[0]
            closing = threading.Thread(target=endpoint.close)
            closing.start()
            api.go.set()
            for thread in (closing, *threads):
                thread.join(WAIT_S)
    # A write that has begun is answered, whoever else is slow, also while the service stops.
    assert [b'{"done": true}' in answer for answer in answers] == [True] * MOST_AT_WORK


class BigMetrics(SelfMetrics):
    """Metrics that fit into no buffer of a connection."""

    def text(self) -> bytes:
        return BIG


def test_a_client_that_reads_nothing_does_not_hold_the_end() -> None:
    request = b"GET /metrics HTTP/1.1\r\n\r\n"
    with (
        Endpoint("127.0.0.1:0", BigMetrics()) as endpoint,
        slow_clients(endpoint, request) as clients,
    ):
        assert clients[-1].recv(9)
        assert b"ok" in get(endpoint, "/healthz")
        began = time.monotonic()
        endpoint.close()
        assert time.monotonic() - began < 3


KEEP = b"POST /v1/keep HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
HUGE = b"9" * 5000
MALFORMED = {
    "a length of 5,000 digits": (KEEP + b"Content-Length: " + HUGE + b"\r\n\r\n", 400),
    "a negative length": (KEEP + b"Content-Length: -1\r\n\r\n", 400),
    "a length in other digits": (KEEP + "Content-Length: \u0665\r\n\r\n".encode(), 400),
    "a length that is a word": (KEEP + b"Content-Length: two\r\n\r\n", 400),
    "two lengths": (KEEP + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}", 400),
    "a length and chunks": (
        KEEP + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}", 400),
    "chunks": (KEEP + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", 411),
    "no length": (KEEP + b"\r\n", 411),
    "a large length": (KEEP + b"Content-Length: %d\r\n\r\n" % (MOST_BYTES + 1), 413),
    "less than its length": (KEEP + b"Content-Length: 9\r\n\r\n{}", 400),
    "JSON 8,000 deep": (
        KEEP + b"Content-Length: 16007\r\n\r\n" + b'{"by":' + b"[" * 16_001, 400),
    "a field 3,000 deep": (
        KEEP + b"Content-Length: 15006\r\n\r\n" + b'{"by":' + b'{"a":' * 3_000, 400),
    "no UTF-8": (KEEP + b"Content-Length: 10\r\n\r\n" + b'{"by":"\xff"}', 400),
    "bad UTF-8 in a path": (b"GET /\xff\xfe HTTP/1.1\r\n\r\n", 404),
    "bad UTF-8 in a query": (b"GET /v1/idleness?cluster=%ff&a=\xff HTTP/1.1\r\n\r\n", 404),
    "a NUL in a path": (b"GET /\x00 HTTP/1.1\r\n\r\n", 404),
    "a long path": (b"GET /" + b"x" * 70_000 + b" HTTP/1.1\r\n\r\n", 414),
    "a long header": (b"GET / HTTP/1.1\r\nX: " + b"x" * 70_000 + b"\r\n\r\n", 431),
    "many headers": (b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 200 + b"\r\n", 431),
    "another method": (b"BREW / HTTP/1.1\r\n\r\n", 501),
    "another version": (b"GET / HTTP/" + HUGE + b".1\r\n\r\n", 400),
    "no request": (b"\x16\x03\x01\x02\x00\x01\x00\n", 400),
}  # fmt: skip


@pytest.mark.parametrize(("request_bytes", "code"), MALFORMED.values(), ids=MALFORMED.keys())
def test_a_malformed_request_is_one_line(
    request_bytes: bytes,
    code: int,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    api = WriteApi("", loopback=True)
    api.people = object()  # type: ignore[assignment]
    with Endpoint("127.0.0.1:0", SelfMetrics(), api=api) as endpoint:
        answer = send(endpoint, request_bytes, end=True)
        assert b"ok" in get(endpoint, "/healthz")
    head, _, body = answer.partition(b"\r\n\r\n")
    if not answer.startswith(b"HTTP/"):  # what speaks no HTTP/1 gets the line alone
        head, body = b"HTTP/1.0 %d " % code, answer
    assert head.split(b" ")[1] == str(code).encode(), answer
    assert body.count(b"\n") == 1
    assert 0 < len(body) < 500
    assert b"<" not in body.replace(b"(<", b"")
    assert capfd.readouterr().err == ""
    assert caplog.records == []


def test_a_defect_is_logged_and_answered(caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> list[str]:
        raise ZeroDivisionError

    with Endpoint("127.0.0.1:0", SelfMetrics(), why_not=fail) as endpoint:
        assert get(endpoint, "/readyz").startswith(b"HTTP/1.0 500 ")
        assert b"ok" in get(endpoint, "/healthz")
    (record,) = caplog.records
    assert record.exc_info
