"""Keep the objects of one kind as their list and watch last showed them, and the changes since.

One thread applies the steps of a watch, another takes the changes. Memory is limited by the number
of objects that exist and by the number of changes that wait.
"""

import threading
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Generic, TypeVar

import msgspec

from collectors.kube.list_watch import WatchStep
from collectors.kube.shapes import Node, Pod

T = TypeVar("T", bound=Node | Pod)

WAITING = 50_000
"""Changes that may wait; beyond this number the watch waits for its reader, to limit memory."""
TICK_S = 0.5
"""How often a waiting watch checks whether it should stop."""


class ObjectChange(msgspec.Struct, Generic[T], frozen=True):
    """The newest state of an object that changed, and when its changes were seen."""

    object: T
    first_at: datetime
    """When the oldest change that is not taken yet was seen."""
    at: datetime
    deleted: bool = False


class Collection(Generic[T]):
    """Nodes or pods, by uid."""

    def __init__(
        self, clock: Callable[[], datetime], stop: threading.Event, *, waiting: int = WAITING
    ) -> None:
        self._clock, self._stop, self._most = clock, stop, waiting
        self._lock = threading.Condition()
        self._objects: dict[str, T] = {}
        self._listed: dict[str, T] = {}
        self._changes: dict[str, ObjectChange[T]] = {}
        self._confirmed: datetime | None = None
        self.synced = False

    def apply(self, step: WatchStep[T]) -> None:
        """Apply one step; wait while too many changes wait."""
        with self._lock:
            while len(self._changes) >= self._most and not self._stop.is_set():
                self._lock.wait(TICK_S)
            item = step.object
            if step.kind == "LISTING":
                self._listed = {}
            elif step.kind == "SYNCED":
                self._replace()
            elif item is not None and step.kind == "LISTED":
                self._listed[_get_key(item)] = item
            elif item is not None and step.kind == "DELETED":
                self._objects.pop(_get_key(item), None)
                self._note(item, deleted=True)
            elif item is not None:
                self._objects[_get_key(item)] = item
                self._note(item)

    def confirm(self) -> None:
        """Record that the server just confirmed the current state."""
        with self._lock:
            self._confirmed = self._clock()

    def current(self) -> tuple[list[T], datetime] | None:
        """Return the objects and the time of their state; None before the first list."""
        with self._lock:
            if not self.synced or self._confirmed is None:
                return None
            return list(self._objects.values()), self._confirmed

    def take(self) -> list[ObjectChange[T]]:
        """Remove and return the waiting changes, the newest of each object."""
        with self._lock:
            changes = list(self._changes.values())
            self._changes = {}
            self._lock.notify_all()
            return changes

    def put_back(self, changes: Iterable[ObjectChange[T]]) -> None:
        """Put back changes that were taken but not stored; later changes of an object win."""
        with self._lock:
            for change in changes:
                key = _get_key(change.object)
                newer = self._changes.get(key)
                if newer is not None:
                    change = msgspec.structs.replace(newer, first_at=change.first_at)  # noqa: PLW2901  (the same change, with its first time)
                self._changes[key] = change

    def _replace(self) -> None:
        """Replace all objects by a new list; an object that the list lacks was deleted."""
        before, self._objects, self._listed = self._objects, self._listed, {}
        for key, item in before.items():
            if key not in self._objects:
                self._note(item, deleted=True)
        for key, item in self._objects.items():
            previous = before.get(key)
            if previous is None or _get_version(previous) != _get_version(item):
                self._note(item)
        self.synced = True
        self._confirmed = self._clock()

    def _note(self, item: T, *, deleted: bool = False) -> None:
        now, key = self._clock(), _get_key(item)
        waiting = self._changes.get(key)
        first = now if waiting is None else waiting.first_at
        self._changes[key] = ObjectChange(item, first, now, deleted)


def _get_key(item: Node | Pod) -> str:
    meta = item.metadata
    return meta.uid or f"{meta.namespace}/{meta.name}"


def _get_version(item: Node | Pod) -> str:
    return item.metadata.resource_version
