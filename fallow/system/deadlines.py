"""Hold a call to another machine to a total deadline and to a size, whatever the other one does.

The timeouts of sockets and HTTP clients are per read: a server that sends one byte a second keeps
such a call for ever. Here a timer ends the connection itself.

    pool = watch_connections(urllib3.PoolManager())
    with Deadline(30.0):                    from connecting to the last byte of the body
        response = pool.request("GET", url, preload_content=False)
        body = read_body(response, limit=64 * MIB)
"""

import os
import socket
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import wait
from contextlib import suppress
from types import TracebackType
from typing import Any, Self, TypeVar

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import DecodeError

from fallow.system.daemon_threads import DaemonThreads, ThreadsBusyError

PIECE = 1 << 20
"""Bytes (after decompression) that are read at a time: a compressed bomb stops at the limit."""

_current = threading.local()
T = TypeVar("T")
M = TypeVar("M", bound=urllib3.PoolManager)


class DeadlineExceededError(TimeoutError):
    """A call did not end within its total deadline."""


class BodyTooLargeError(ValueError):
    """A response's body is larger than its reader accepts."""


class Deadline:
    """Close the connections of the block's calls, made in its thread, when the time is over.

    Raises:
        DeadlineExceededError: at the end of the block, if the time was over before it, also where
            the shortened answer looked complete.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.expired = False
        self._sockets: list[socket.socket] = []
        self._lock = threading.Lock()
        self._timer = threading.Timer(seconds, self._expire)
        self._timer.daemon = True
        self._outer: Deadline | None = None

    def __enter__(self) -> Self:
        self._outer = getattr(_current, "deadline", None)
        _current.deadline = self
        self._timer.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._timer.cancel()
        _current.deadline = self._outer
        with self._lock:
            for connection in self._sockets:
                connection.close()
            self._sockets.clear()
        if self.expired and (error is None or isinstance(error, Exception)):
            raise DeadlineExceededError(f"no complete answer within {self.seconds:g} s") from error

    def watch(self, connection: socket.socket) -> None:
        """End this connection too when the time is over.

        The connection is duplicated: TLS takes the file descriptor away from the socket below it.
        """
        duplicate = socket.socket(fileno=os.dup(connection.fileno()))
        with self._lock:
            self._sockets.append(duplicate)
            if self.expired:
                _shut_down(duplicate)

    def _expire(self) -> None:
        with self._lock:
            self.expired = True
            for connection in self._sockets:
                _shut_down(connection)


def _shut_down(connection: socket.socket) -> None:
    with suppress(OSError):  # the other side was faster
        connection.shutdown(socket.SHUT_RDWR)


def watch_current(connection: socket.socket | None) -> None:
    """End a new connection when the deadline of this thread is over; nothing without a deadline."""
    deadline: Deadline | None = getattr(_current, "deadline", None)
    if deadline is not None and connection is not None and connection.fileno() >= 0:
        deadline.watch(connection)


class WatchedHttpConnection(HTTPConnection):
    """A connection that the thread's deadline ends."""

    def _new_conn(self) -> socket.socket:
        connection = super()._new_conn()
        watch_current(connection)
        return connection

    def putrequest(self, *args: Any, **options: Any) -> None:
        """Begin a request; a connection that was used before comes under today's deadline."""
        watch_current(self.sock)
        super().putrequest(*args, **options)


class WatchedHttpsConnection(HTTPSConnection):
    """A TLS connection that the thread's deadline ends, in its handshake too."""

    def _new_conn(self) -> socket.socket:
        connection = super()._new_conn()
        watch_current(connection)
        return connection

    def putrequest(self, *args: Any, **options: Any) -> None:
        """Begin a request; a connection that was used before comes under today's deadline."""
        watch_current(self.sock)
        super().putrequest(*args, **options)


class WatchedHttpPool(HTTPConnectionPool):
    """A pool of watched connections."""

    ConnectionCls = WatchedHttpConnection


class WatchedHttpsPool(HTTPSConnectionPool):
    """A pool of watched TLS connections."""

    ConnectionCls = WatchedHttpsConnection


def watch_connections(pools: M) -> M:
    """Make a pool manager open connections that deadlines end; return the same manager.

    A manager with pools of its own (SOCKS) keeps them: there only the timeouts of reads hold.
    """
    plain = {"http": HTTPConnectionPool, "https": HTTPSConnectionPool}
    if pools.pool_classes_by_scheme == plain:
        pools.pool_classes_by_scheme = {"http": WatchedHttpPool, "https": WatchedHttpsPool}
    return pools


MOST_ABANDONED = 16
"""Abandoned calls of `call_within` that may hang at a time; beyond it no further call begins."""
_calls = DaemonThreads("call-within", MOST_ABANDONED)


class TooManyHangingCallsError(TimeoutError):
    """A call was not begun, because earlier calls still hang."""


def call_within(seconds: float, call: Callable[[], T]) -> T:
    """Return a call's result, or abandon the call when the time is over.

    For libraries that open their connections themselves and have a timeout per read only (Apprise,
    boto3): no one can end their connections from outside. The call goes on in its thread, which
    does not keep the process alive, and its result is dropped.

    Raises:
        TooManyHangingCallsError: it was not begun.
        DeadlineExceededError: it did not end in time; what it does may still happen.
    """
    try:
        result = _calls.start(call)
    except ThreadsBusyError as error:
        raise TooManyHangingCallsError(f"{MOST_ABANDONED} earlier calls still hang") from error
    if not wait([result], seconds).done:
        raise DeadlineExceededError(f"no complete answer within {seconds:g} s")
    return result.result()


def unpack_body(response: Any, packed: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the pieces of a urllib3 response's body, unpacked where they are gzip or deflate.

    Each unpacked one has at most `PIECE` bytes. urllib3 2.8 itself doubles what is left to unpack
    wherever a gzip member ends with a piece: 100 kB become gigabytes.

    Raises:
        DecodeError: it is not what its Content-Encoding says.
    """
    encoding = response.headers.get("Content-Encoding", "").strip().lower()
    if encoding not in {"gzip", "deflate"}:  # remote read has snappy, which its reader unpacks
        yield from packed
        return
    decoder = zlib.decompressobj(zlib.MAX_WBITS | 32)  # gzip or zlib, by their headers
    try:
        for piece in packed:
            rest = piece
            while unpacked := decoder.decompress(rest, PIECE):
                yield unpacked
                rest = decoder.unconsumed_tail
    except zlib.error as error:
        raise DecodeError(f"the answer cannot be decompressed: {error}") from error
    if not decoder.eof or decoder.unused_data:
        raise DecodeError(f"the answer is not one whole {encoding}")


def read_body(response: Any, *, limit: int) -> bytes:
    """Return the whole body of a urllib3 response, decompressed.

    Raises:
        BodyTooLargeError: it is larger than `limit` bytes after decompression.
        DecodeError: it is not what its Content-Encoding says.
    """
    pieces: list[bytes] = []
    size = 0
    packed = iter(lambda: response.read(PIECE, decode_content=False), b"")
    for piece in unpack_body(response, packed):
        size += len(piece)
        if size > limit:
            raise BodyTooLargeError(f"the answer is larger than {limit:,} bytes")
        pieces.append(piece)
    return b"".join(pieces)
