"""Write the controllers' decisions to the store.

Deleted objects need no deleting, existing objects no creating. A refusal by a quota is kept until
something in its namespace makes room.
"""

from collections import defaultdict, deque
from typing import Any, Literal

from fallow.kube.objects import get_namespace, get_path, get_uid, name
from simulator.cluster.objects import Object, get_kind
from simulator.kube.server_metadata import format_time
from simulator.kube.status import StatusError
from simulator.kube.store import ObjectStore

EVENT_TTL_S = 3_600.0
"""The API server deletes events after an hour (`--event-ttl`)."""
NOT_FOUND, CLASH, FORBIDDEN = 404, 409, 403


class StoreWriter:
    """Writes to the store for the controllers, at one time (`now_s`)."""

    def __init__(self, store: ObjectStore) -> None:
        self.store = store
        self.now_s = 0.0
        self.refused: defaultdict[str, dict[str, str]] = defaultdict(dict)
        """By namespace: uid of the owner whose child was refused, and why."""
        self._events: deque[tuple[float, str, str, tuple[str, str, str]]] = deque()
        self._random = 0
        self._numbers: dict[tuple[str, str, str], str] = {}

    def create(self, obj: Object, manager: str, owner: Object | None = None) -> Object | None:
        """Create an object; None when its namespace refuses it or has it already."""
        try:
            created = self.store.create(get_kind(obj), obj, manager=manager)
        except StatusError as error:
            if error.code == CLASH:
                return None
            if error.code != FORBIDDEN or owner is None:
                raise
            why = str(error.message)
            if get_uid(owner) not in self.refused[get_namespace(obj)]:
                self.refused[get_namespace(obj)][get_uid(owner)] = why
                self.event(owner, "FailedCreate", f"Error creating: {why}", manager, "Warning")
            return None
        if owner is not None:
            self.refused[get_namespace(obj)].pop(get_uid(owner), None)
        return created

    def patch(
        self, obj: Object, body: Object, manager: str, subresource: Literal["", "status"] = ""
    ) -> None:
        """Merge a patch into an object, where it changes anything and the object is still there."""
        if is_merged(body, obj):
            return
        try:
            self.store.patch(
                get_kind(obj),
                name(obj),
                get_namespace(obj),
                body,
                how="merge",
                subresource=subresource,
                manager=manager,
            )
        except StatusError as error:
            if error.code != NOT_FOUND:
                raise

    def status(self, obj: Object, status: Object, manager: str) -> None:
        """Merge into an object's status."""
        self.patch(obj, {"status": status}, manager, "status")

    def delete(self, obj: Object, *, grace_s: float | None = None) -> None:
        """Delete an object if it is still the same one."""
        try:
            self.store.delete(
                get_kind(obj), name(obj), get_namespace(obj), grace_s=grace_s, uid=get_uid(obj)
            )
        except StatusError as error:
            if error.code not in {NOT_FOUND, CLASH}:
                raise

    def remove(self, pod: Object) -> None:
        """Delete a pod whose containers have ended, or whose node does not return."""
        current = self.store.get("Pod", name(pod), get_namespace(pod))
        if current is not None and get_uid(current) == get_uid(pod):
            self.store.remove("Pod", name(pod), get_namespace(pod))

    def event(
        self, about: Object, reason: str, message: str, source: str, kind: str = "Normal"
    ) -> None:
        """Record an event; a repeated one counts up."""
        key = (get_uid(about), reason, message)
        space, timestamp = get_namespace(about) or "default", format_time(self.now_s)
        event_number = self._numbers.get(key)
        event = self.store.get("Event", event_number, space) if event_number else None
        if event is not None:
            body = {"count": event["count"] + 1, "lastTimestamp": timestamp}
            self.store.patch("Event", name(event), space, body, manager=source)
            return
        self._random += 1
        number = self._random
        called_so = f"{name(about)}.{int(self.now_s):x}{number:06x}"
        self._numbers[key] = called_so
        self._events.append((self.now_s, space, called_so, key))
        involved = {
            "apiVersion": about["apiVersion"],
            "kind": about["kind"],
            "name": name(about),
            "uid": get_uid(about),
        }
        body = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": called_so, "namespace": space},
            "involvedObject": {
                **involved,
                **({"namespace": space} if get_namespace(about) else {}),
            },
            "reason": reason,
            "message": message,
            "type": kind,
            "count": 1,
            "firstTimestamp": timestamp,
            "lastTimestamp": timestamp,
            "source": {"component": source},
            "reportingComponent": source,
        }
        try:
            self.store.create("Event", body, manager=source)
        except StatusError:  # a terminating namespace accepts no events
            self._events.pop()

    def forget(self) -> None:
        """Delete the events that are older than the server keeps them."""
        while self._events and self._events[0][0] <= self.now_s - EVENT_TTL_S:
            _, space, called_so, key = self._events.popleft()
            self._numbers.pop(key, None)
            if self.store.get("Event", called_so, space) is not None:
                self.store.delete("Event", called_so, space)


def is_merged(patch: Any, current: Any) -> bool:
    """Return whether merging `patch` into `current` would change nothing."""
    if isinstance(patch, dict):
        if not isinstance(current, dict):
            return False
        for key, value in patch.items():
            if value is None:
                if current.get(key) is not None:
                    return False
            elif key not in current or not is_merged(value, current[key]):
                return False
        return True
    return bool(patch == current)


def is_covered(expected: Any, actual: Any) -> bool:
    """Return whether `actual` contains `expected`; it may have more (a server's defaults)."""
    if isinstance(expected, dict):
        return isinstance(actual, dict) and all(
            is_covered(v, actual.get(k)) for k, v in expected.items()
        )
    if isinstance(expected, list):
        return (
            isinstance(actual, list)
            and len(expected) == len(actual)
            and all(map(is_covered, expected, actual))
        )
    return bool(expected == actual)


def get_replicas(obj: Object) -> int:
    """Return how many replicas an object requests; 1 without a number."""
    return int(get_path(obj, "spec", "replicas", default=1))
