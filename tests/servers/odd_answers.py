"""Servers of loopback that answer as no server should: one address for each oddity."""

import gzip
import socket
import struct
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache

Script = Callable[[socket.socket, threading.Event], None]
OK = b"HTTP/1.1 200 OK\r\n"
PIECE = b"# " + b"x" * 65_533 + b"\n"


class OddServer:
    """Where it listens, and the heads of the requests that it got."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.requests: list[bytes] = []


@contextmanager
def serve_odd(choose: Callable[[str], Script]) -> Iterator[OddServer]:
    """Answer each connection by the script for the last word of its path, until the block ends."""
    ending = threading.Event()

    def answer(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            connection.settimeout(20)
            request = connection.recv(65_536)
            server.requests.append(request)
            path = request.partition(b" ")[2].partition(b" ")[0].partition(b"?")[0]
            choose(path.rpartition(b"/")[2].decode())(connection, ending)

    def listen() -> None:
        with suppress(OSError):  # closed at the end
            while True:
                connection, _ = listener.accept()
                threading.Thread(target=answer, args=(connection,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = OddServer(listener.getsockname()[1])
        threading.Thread(target=listen, daemon=True).start()
        try:
            yield server
        finally:
            ending.set()
            listener.shutdown(socket.SHUT_RDWR)


def say(answer: bytes) -> Script:
    """Send an answer and close."""
    return lambda connection, _: connection.sendall(answer)


def say_body(body: bytes, headers: bytes = b"", status: bytes = OK) -> Script:
    """Send a body with its length."""
    return say(status + headers + b"Content-Length: %d\r\n\r\n" % len(body) + body)


def hold(answer: bytes) -> Script:
    """Send an answer and keep the connection open in silence."""

    def script(connection: socket.socket, ending: threading.Event) -> None:
        connection.sendall(answer)
        ending.wait()

    return script


def repeat(head: bytes, piece: bytes, every_s: float = 0.0) -> Script:
    """Send a head, then a piece again and again without end."""

    def script(connection: socket.socket, ending: threading.Event) -> None:
        connection.sendall(head)
        while not ending.wait(every_s):
            connection.sendall(piece)

    return script


def reset(head: bytes) -> Script:
    """Send a head and reset the connection."""

    def script(connection: socket.socket, _: threading.Event) -> None:
        connection.sendall(head)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    return script


def redirect(to: str) -> Script:
    """Send the client elsewhere."""
    return say(f"HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n".encode())


CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
GZIPPED = b"Content-Encoding: gzip\r\n"
DEFLATED = b"Content-Encoding: deflate\r\n"


@cache
def make_bombs() -> tuple[bytes, bytes]:
    """Return 96 MiB of zeros in little, by gzip and by deflate."""
    return gzip.compress(bytes(1 << 20), 9) * 96, zlib.compress(bytes(96 << 20), 9)


def list_wire_oddities(elsewhere: str) -> Mapping[str, Script]:
    """Return answers that no client may accept, whatever it reads; `elsewhere` is redirected to."""
    gzipped, deflated = make_bombs()
    return {
        "a body that never ends": repeat(OK + b"\r\n", PIECE),
        "chunks that never end": repeat(CHUNKED, b"10000\r\n" + PIECE + b"\r\n"),
        "a body of a byte at a time": repeat(OK + b"\r\n", b"#", 0.02),
        "headers of a byte at a time": repeat(OK + b"X-Slow: ", b"x", 0.02),
        "a status line of a byte at a time": repeat(b"HTTP/1.1 200 ", b"O", 0.02),
        "silence": hold(b""),
        "a header of 1 MB": say(OK + b"X-Big: " + b"x" * (1 << 20) + b"\r\n\r\n"),
        "headers without end": repeat(OK, b"X-Header: y\r\n"),
        "100 Continue without end": repeat(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        "what is no gzip": say_body(b"no gzip at all", GZIPPED),
        "half a gzip": say_body(gzip.compress(PIECE)[:60], GZIPPED),
        "a bomb of gzip": say_body(gzipped, GZIPPED),
        "a bomb of deflate": say_body(deflated, DEFLATED),
        "a length of more than it sends": say(OK + b"Content-Length: 999\r\n\r\nx 1\n"),
        "a length of 5,000 digits": hold(OK + b"Content-Length: " + b"9" * 5000 + b"\r\n\r\n"),
        "a negative length": hold(OK + b"Content-Length: -1\r\n\r\n"),
        "two lengths": say(OK + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n[]"),
        "what is no chunk": say(CHUNKED + b"ZZZ\r\nfoo\r\n"),
        "a chunk of 2^64 bytes": hold(CHUNKED + b"FFFFFFFFFFFFFFFF\r\nx"),
        "a redirect elsewhere": redirect(f"{elsewhere}/redirected/metrics"),
        "a redirect to no address": redirect("http://[::1/\x01"),
        "204": say(b"HTTP/1.1 204 No Content\r\n\r\n"),
        "500 that never ends": repeat(b"HTTP/1.1 500 Oh\r\n\r\n", PIECE),
        "a status of 999": say(b"HTTP/1.1 999 Odd\r\n\r\n"),
        "another protocol": say(b"SSH-2.0-OpenSSH_9.2\r\n" + bytes(range(256))),
        "a connection that ends at once": say(b""),
        "a reset": reset(b""),
        "a reset amid the body": reset(CHUNKED + b"5\r\nhel"),
        "an empty body": say_body(b""),
        "bytes that are no text": say_body(b"\xff\xfe\x00" * 99 + b"\n"),
        "a web page": say_body(b"<!doctype html><p>sign in</p>\n"),
    }  # fmt: skip
