"""A server of loopback that accepts every connection, and sends one byte a second or nothing."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n"


class Dripping:
    """Where it listens, and how many connections it has."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.host, self.port = address
        self.connections = 0
        self.connected = threading.Event()

    @property
    def url(self) -> str:
        """Its address as a URL."""
        return f"http://{self.host}:{self.port}"


@contextmanager
def dripping(
    *, first: bytes = HEAD, drop: bytes = b"1\r\n#\r\n", every_s: float = 1.0
) -> Iterator[Dripping]:
    """Serve until the block ends: `first` at once, then a `drop` at a time; b"" = it is silent."""
    ending = threading.Event()

    def serve(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            connection.sendall(first)
            while not ending.wait(every_s):
                connection.sendall(drop)

    def listen() -> None:
        with suppress(OSError):  # closed at the end
            while True:
                connection, _ = listener.accept()
                server.connections += 1
                server.connected.set()
                threading.Thread(target=serve, args=(connection,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = Dripping(listener.getsockname()[:2])
        threading.Thread(target=listen, daemon=True).start()
        try:
            yield server
        finally:
            ending.set()
            listener.shutdown(socket.SHUT_RDWR)
