"""Turn SIGTERM and SIGINT into a stop, whatever the main thread does at that time.

A handler in Python runs in the main thread, between two of its instructions. If that thread was
about to wait for the stop, it holds the event's lock, and a handler that sets the event waits for
that lock without end. So the handlers do nothing: the interpreter writes the signal's number into a
socket immediately (`signal.set_wakeup_fd`), and a thread that reads the socket sets the event.
"""

import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
PERIOD_S = 0.1


def handle_stop_signals() -> None:
    """Install our handlers of SIGTERM and SIGINT; again after a library has replaced one of them.

    Only the main thread may do this; in another thread nothing changes.
    """
    if threading.current_thread() is threading.main_thread():
        for number in STOP_SIGNALS:
            signal.signal(number, _ignore)


@contextmanager
def stop_on_signals(stop: threading.Event) -> Iterator[None]:
    """Set `stop` on SIGTERM or SIGINT inside the block; outside the main thread nothing changes."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    with _call_on_signals(stop.set):
        handle_stop_signals()
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


@contextmanager
def interrupt_on_signals(interrupt: Callable[[], None]) -> Iterator[None]:
    """Call `interrupt` on SIGINT until the block ends; outside the main thread nothing changes.

    The main thread gets its `KeyboardInterrupt` where the engine checks for one, and the engine
    then waits for its other threads, which do not end by it. An interruption that comes before a
    statement has begun is forgotten, so that one is not enough.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    ended = threading.Event()

    def repeat() -> None:
        interrupt()
        while not ended.wait(PERIOD_S):
            interrupt()

    with _call_on_signals(repeat):
        try:
            yield
        finally:
            ended.set()


@contextmanager
def _call_on_signals(call: Callable[[], None]) -> Iterator[None]:
    """Call this in a thread of its own at each of our signals that the interpreter handles."""
    receiver, sender = socket.socketpair()
    sender.setblocking(False)
    reader = threading.Thread(
        target=_wait_for_signals, args=(receiver, call), name="stop-signals", daemon=True
    )
    with receiver, sender:
        reader.start()
        descriptor = signal.set_wakeup_fd(sender.fileno(), warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(descriptor)
            sender.close()  # ends the reading thread
            reader.join()


def _ignore(_number: int, _frame: FrameType | None) -> None:
    """Do nothing: the thread that reads the socket sets the event."""


def _wait_for_signals(receiver: socket.socket, call: Callable[[], None]) -> None:
    """Read signal numbers, a byte each, until the socket is closed; ignore other signals."""
    while numbers := receiver.recv(64):
        if not set(numbers).isdisjoint(STOP_SIGNALS):
            call()
