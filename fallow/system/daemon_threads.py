"""Run tasks in daemon threads: a task that hangs does not keep the process alive.

The pools of `concurrent.futures` are joined when the interpreter ends, so that a read without an
answer would hold a stopped process until it is killed.
"""

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Protocol, TypeVar

log = logging.getLogger("fallow.threads")
T = TypeVar("T")


class ThreadsClosedError(Exception):
    """The threads take no more tasks: the process stops."""


class ThreadsBusyError(Exception):
    """Every thread has a task: the task was not taken."""


class TaskRunner(Protocol):
    """Runs tasks, at once or later."""

    def submit(self, task: Callable[[], object]) -> None:
        """Run a task.

        Raises:
            ThreadsClosedError: no more tasks are taken.
        """
        ...


class CallingThread:
    """Runs each task at once in the thread that submits it."""

    def submit(self, task: Callable[[], object]) -> None:
        """Run a task."""
        task()


def call_in(threads: TaskRunner, task: Callable[[], T]) -> T:
    """Run a task in other threads, and return its result or raise its error.

    Raises:
        ThreadsClosedError: no more tasks are taken.
    """
    result: Future[T] = Future()
    threads.submit(lambda: _complete(result, task))
    return result.result()


def _complete(result: "Future[T]", task: Callable[[], T]) -> None:
    try:
        result.set_result(task())
    except BaseException as error:  # noqa: BLE001  (whoever waits for the result raises it)
        result.set_exception(error)


class DaemonThreads:
    """At most `most` threads, started when tasks need them; tasks begin in their order."""

    def __init__(self, name: str, most: int) -> None:
        self._name, self._most = name, most
        self._lock = threading.Lock()
        self._tasks: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._unfinished = 0
        self._closed = False

    def submit(self, task: Callable[[], object]) -> None:
        """Run a task in one of the threads, after the tasks that were submitted before.

        Raises:
            ThreadsClosedError: `close` was called.
        """
        with self._lock:
            self._add(task)

    def start(self, task: Callable[[], T]) -> "Future[T]":
        """Run a task at once in a thread that has none; return its result to come.

        Raises:
            ThreadsBusyError: every thread has a task, which may hang.
            ThreadsClosedError: `close` was called.
        """
        result: Future[T] = Future()
        with self._lock:
            if self._unfinished >= self._most:
                raise ThreadsBusyError(f"all {self._most} threads {self._name} have a task")
            self._add(lambda: _complete(result, task))
        return result

    def close(self, until: float) -> bool:
        """Take no more tasks, and wait for the submitted ones until a monotonic time (seconds).

        Returns whether all of them ended; the others go on until the process ends.
        """
        with self._lock:
            if not self._closed:
                self._closed = True
                for _ in self._threads:
                    self._tasks.put(None)
        for thread in self._threads:
            thread.join(max(until - time.monotonic(), 0))
        return not any(thread.is_alive() for thread in self._threads)

    def _add(self, task: Callable[[], object]) -> None:
        """Put a task into the queue, and start a thread where none is free; the lock is held."""
        if self._closed:
            raise ThreadsClosedError(f"the threads {self._name} are closed")
        self._unfinished += 1
        if self._unfinished > len(self._threads) < self._most:
            name = f"{self._name}-{len(self._threads)}"
            thread = threading.Thread(target=self._work, name=name, daemon=True)
            self._threads.append(thread)
            thread.start()
        self._tasks.put(task)

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            try:
                task()
            except Exception:
                log.exception("a task failed", extra={"threads": self._name})
            del task  # its rows are not kept until the next task comes
            with self._lock:
                self._unfinished -= 1
