"""Watch nodes and pods from one thread each, into one bounded queue."""

import queue
import threading
from collections.abc import Callable, Iterator
from typing import TypeVar

import msgspec

from collectors.kube.list_watch import ListWatch, Step
from collectors.kube.shapes import Node, Pod
from collectors.kube.survey import NODES, PODS
from fallow.kube.api import Api

QUEUED = 2000
"""Changes that may wait; a slow reader slows the watches, not the memory."""

TICK_S = 0.5
"""How often a quiet watch looks whether it should stop."""

T = TypeVar("T")


class Seen(msgspec.Struct, frozen=True):
    """A step of one of the two watches."""

    path: str
    step: Step[Node] | Step[Pod]


class Watches:
    """Both watches; `seen` runs until `stop` is set and leaves no thread behind."""

    def __init__(self, api: Api, *, limit: int, on_failure: Callable[[str, str], None]) -> None:
        self._queue: queue.Queue[Seen] = queue.Queue(QUEUED)
        self._nodes = ListWatch(
            api, NODES, Node, limit=limit, on_failure=lambda text: on_failure(NODES, text)
        )
        self._pods = ListWatch(
            api, PODS, Pod, limit=limit, on_failure=lambda text: on_failure(PODS, text)
        )

    def seen(self, stop: threading.Event) -> Iterator[Seen | None]:
        """Yield steps as they come; None whenever it has been quiet for `TICK_S`."""
        threads = [
            threading.Thread(target=self._run, args=(path, watch, stop), daemon=True)
            for path, watch in ((NODES, self._nodes), (PODS, self._pods))
        ]
        for thread in threads:
            thread.start()
        try:
            while not stop.is_set():
                try:
                    yield self._queue.get(timeout=TICK_S)
                except queue.Empty:
                    yield None
        finally:
            stop.set()
            self._nodes.close()
            self._pods.close()
            for thread in threads:
                thread.join(timeout=5)

    def _run(self, path: str, watch: ListWatch[T], stop: threading.Event) -> None:
        for step in watch.steps(stop):
            seen = Seen(path, step)  # type: ignore[arg-type]
            while not stop.is_set():
                try:
                    self._queue.put(seen, timeout=TICK_S)
                    break
                except queue.Full:
                    continue
