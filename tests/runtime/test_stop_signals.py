"""SIGTERM and SIGINT stop the service whatever the main thread does when they come."""

import signal
import subprocess
import sys
import threading

import pytest

from runtime.service.stop_signals import STOP_SIGNALS, stop_on_signals

SIGNAL_WHILE_THE_EVENT_IS_LOCKED = """
import os, sys, threading
from runtime.service.stop_signals import stop_on_signals
stop = threading.Event()
with stop_on_signals(stop):
    with stop._cond:  # as inside stop.wait(), before it waits
        os.kill(os.getpid(), int(sys.argv[1]))
        for _ in range(1000):
            pass  # a handler in Python runs here
    sys.exit(0 if stop.wait(30) else 3)
"""


@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_a_signal_while_the_main_thread_holds_the_event_stops_it(number: signal.Signals) -> None:
    command = [sys.executable, "-c", SIGNAL_WHILE_THE_EVENT_IS_LOCKED, str(int(number))]
    assert subprocess.run(command, timeout=60, check=False).returncode == 0


def test_handlers_and_the_wakeup_descriptor_are_given_back() -> None:
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    with stop_on_signals(threading.Event()):
        assert {number: signal.getsignal(number) for number in STOP_SIGNALS} != before
    assert {number: signal.getsignal(number) for number in STOP_SIGNALS} == before
    descriptor = signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(descriptor)
    assert descriptor == -1


def test_a_signal_that_is_none_of_ours_stops_nothing() -> None:
    stop = threading.Event()
    handler = signal.signal(signal.SIGUSR1, lambda *_: None)
    try:
        with stop_on_signals(stop):
            signal.raise_signal(signal.SIGUSR1)
        assert not stop.is_set()
        with stop_on_signals(stop):
            signal.raise_signal(signal.SIGTERM)
        assert stop.is_set()  # what came before the end is read before it ends
    finally:
        signal.signal(signal.SIGUSR1, handler)


def test_another_thread_than_the_main_one_takes_no_signals() -> None:
    found = []

    def read_handler() -> None:
        with stop_on_signals(threading.Event()):
            found.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=read_handler)
    thread.start()
    thread.join()
    assert found == [signal.getsignal(signal.SIGTERM)]
