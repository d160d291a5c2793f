"""Run slices in processes of this machine."""

import multiprocessing
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

from warehouse.runners.slices import ATTEMPTS, fail_stage

S = TypeVar("S")
T = TypeVar("T")


class LocalRunner:
    """A pool of processes. A process that is killed is replaced, and its slices run again."""

    def __init__(self, processes: int) -> None:
        self._processes = processes
        self._pool = self._open_pool()

    @property
    def concurrency(self) -> int:
        """How many slices run at the same time."""
        return self._processes

    def map(self, task: Callable[[S], T], slices: Sequence[S]) -> list[T]:
        """Return the task's result for each slice, in their order; see `Runner`."""
        results: dict[int, T] = {}
        for attempt in range(1, ATTEMPTS + 1):
            left = [n for n in range(len(slices)) if n not in results]
            failed = self._try(task, slices, left, results)
            if not failed:
                break
            if attempt == ATTEMPTS:
                number, error = failed
                raise fail_stage(slices[number], error) from error
        return [results[n] for n in range(len(slices))]

    def close(self) -> None:
        """Stop the processes; what runs is waited for."""
        self._pool.shutdown(cancel_futures=True)

    def _try(
        self,
        task: Callable[[S], T],
        slices: Sequence[S],
        numbers: Sequence[int],
        results: dict[int, T],
    ) -> tuple[int, BaseException] | None:
        """Run these slices once, add their results, and return the first that failed."""
        failed: tuple[int, BaseException] | None = None
        broken = False
        futures: dict[Future[T], int] = {}
        try:
            for n in numbers:
                futures[self._pool.submit(task, slices[n])] = n
        except BrokenProcessPool as error:  # a process died while the first slices were sent
            failed, broken = (numbers[len(futures)], error), True
        for future in as_completed(futures):
            cause = future.exception()
            if cause is None:
                results[futures[future]] = future.result()
                continue
            broken = broken or isinstance(cause, BrokenProcessPool)
            failed = failed or (futures[future], cause)
        if broken:
            self._pool.shutdown(cancel_futures=True)
            self._pool = self._open_pool()
        return failed

    def _open_pool(self) -> ProcessPoolExecutor:
        # Spawned, not forked: the parent has engine threads, and a fork of them hangs.
        return ProcessPoolExecutor(
            self._processes,
            mp_context=multiprocessing.get_context("spawn"),
            initializer=_follow_parent,
        )


def _follow_parent() -> None:
    """End this process when its parent is killed: a pool's processes would wait for good."""

    def wait() -> None:
        parent = multiprocessing.parent_process()
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
