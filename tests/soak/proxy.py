"""A TCP proxy before a store: its port can be closed, its connections hang, an answer be lost."""

import select
import socket
import threading
import time
from contextlib import suppress

CHUNK = 65536


class Proxy:
    """Forwards one loopback port to another while no fault is on."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._pairs: set[tuple[socket.socket, socket.socket]] = set()
        self._lock = threading.Lock()
        self._open = threading.Event()
        self._flows = threading.Event()
        self._flows.set()
        self._last_words = b""
        self._listener = self._listen(0)
        self.port = int(self._listener.getsockname()[1])
        self._open.set()
        threading.Thread(target=self._accept, daemon=True).start()

    def close_port(self) -> None:
        """Refuse new connections and cut those that are open."""
        self._open.clear()
        with suppress(OSError):
            # A thread that waits in `accept` would keep a socket that is only closed.
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            pairs = list(self._pairs)
        for pair in pairs:
            for side in pair:
                with suppress(OSError):
                    side.shutdown(socket.SHUT_RDWR)

    def open_port(self) -> None:
        """Listen again on the same port."""
        for _ in range(100):
            try:
                self._listener = self._listen(self.port)
                break
            except OSError:  # a port that was just closed may be busy for a moment
                time.sleep(0.1)
        else:
            raise OSError(f"port {self.port} cannot be opened again")
        self._open.set()

    def hang(self) -> None:
        """Accept connections and bytes, and forward nothing."""
        self._flows.clear()

    def resume(self) -> None:
        """Forward again, also what waited."""
        self._flows.set()

    def lose_answer(self, request: bytes) -> None:
        """Forward the next request with these bytes, and cut its connection before the answer."""
        self._last_words = request

    @property
    def has_lost_answer(self) -> bool:
        """Whether the answer of the last `lose_answer` was lost."""
        return not self._last_words

    @staticmethod
    def _listen(port: int) -> socket.socket:
        return socket.create_server(("127.0.0.1", port), backlog=128, reuse_port=False)

    def _accept(self) -> None:
        while True:
            self._open.wait()
            try:
                client, _ = self._listener.accept()
            except OSError:
                self._open.wait(0.05)
                continue
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        try:
            server = socket.create_connection(("127.0.0.1", self._target), timeout=10)
        except OSError:
            client.close()
            return
        pair = (client, server)
        with self._lock:
            self._pairs.add(pair)
        try:
            self._forward(client, server)
        finally:
            with self._lock:
                self._pairs.discard(pair)
            for side in pair:
                side.close()

    def _forward(self, client: socket.socket, server: socket.socket) -> None:
        loses = False
        with suppress(OSError, ValueError):
            while True:
                readable, _, _ = select.select([client, server], [], [], 1.0)
                self._flows.wait()
                for side in readable:
                    data = side.recv(CHUNK)
                    if not data or (loses and side is server):
                        return
                    if side is client and self._last_words and self._last_words in data:
                        loses, self._last_words = True, b""
                    (server if side is client else client).sendall(data)
