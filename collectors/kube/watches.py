"""Watch nodes and pods in one thread each, so that pods that exist for seconds are seen too."""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from collectors.kube.collection import Collection
from collectors.kube.list_watch import ListWatch, WatchProgress
from collectors.kube.shapes import Node, Pod
from fallow.kube.api import ApiConnection
from fallow.rejections import Rejection

log = logging.getLogger("fallow.kube")

NODES, PODS = "/api/v1/nodes", "/api/v1/pods"
FAILURES = 1000
"""Failures kept until they are recorded; the newest ones."""
JOIN_S = 5.0
BEGIN_S = 60.0
"""How long the first poll waits for the watches' lists before it lists by itself."""
REFUSED = frozenset({401, 403, 404, 405})
"""Responses after which only lists are used: no permission to watch, or no watch at all."""


class Watches:
    """Both watches and the collections that they update; `running` leaves no thread behind."""

    def __init__(
        self,
        api: ApiConnection,
        *,
        limit: int,
        clock: Callable[[], datetime],
        stop: threading.Event,
    ) -> None:
        self._clock, self._stop, self._host = clock, stop, api.host
        self.failures: deque[tuple[str, datetime, str]] = deque(maxlen=FAILURES)
        """Path, timestamp and text of each error, until a poll records them."""
        self.rejections: deque[Rejection] = deque(maxlen=FAILURES)
        self.nodes: Collection[Node] = Collection(clock, stop)
        self.pods: Collection[Pod] = Collection(clock, stop)
        self.progress = {path: WatchProgress(path.rpartition("/")[2]) for path in (NODES, PODS)}
        self._watches: tuple[tuple[str, ListWatch[Any], Collection[Any]], ...] = (
            (NODES, self._watch(api, NODES, Node, self.nodes, limit), self.nodes),
            (PODS, self._watch(api, PODS, Pod, self.pods, limit), self.pods),
        )

    def _watch(
        self, api: ApiConnection, path: str, shape: Any, collection: Collection[Any], limit: int
    ) -> ListWatch[Any]:
        def failed(text: str) -> None:
            self.failures.append((f"{self._host}{path}", self._clock(), text))

        return ListWatch(
            api,
            path,
            shape,
            limit=limit,
            on_failure=failed,
            reject=self.rejections.append,
            on_contact=collection.confirm,
            progress=self.progress[path],
        )

    @property
    def usable(self) -> bool:
        """Return whether both kinds were listed and may still be watched."""
        is_synced = self.nodes.synced and self.pods.synced
        return is_synced and not any(p.refused in REFUSED or p.dead for p in self.progress.values())

    def await_lists(self) -> None:
        """Wait until both kinds were listed, one failed, or it takes too long."""
        end = time.monotonic() + BEGIN_S
        while not self.usable and time.monotonic() < end:
            failed = any(p.failures or p.dead for p in self.progress.values())
            if failed or self._stop.wait(0.02):
                return

    @contextmanager
    def running(self) -> Iterator[None]:
        """Watch until the block ends or `stop` is set."""
        threads = [
            threading.Thread(
                target=self._run, args=(path, watch, collection), name=f"watch {path}", daemon=True
            )
            for path, watch, collection in self._watches
        ]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._stop.set()
            for _, watch, _ in self._watches:
                watch.close()
            for thread in threads:
                thread.join(timeout=JOIN_S)

    def _run(self, path: str, watch: ListWatch[Any], collection: Collection[Any]) -> None:
        try:
            for step in watch.steps(self._stop):
                collection.apply(step)
        except Exception:
            # Lists continue without the watch; the traceback shows what to repair.
            self.progress[path].dead = True
            log.exception("a watch ended", extra={"path": path})
