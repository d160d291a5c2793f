"""Simulate the controllers that write an object again right after another client's write.

On a real server (1.36) two of them react to a write within milliseconds, so that the version that
the write returned is old before the next request arrives:

    Deployment   its controller writes status after each new generation, and a generation is caused
                 by a change of the spec *or of an annotation*
    Node         the node-lifecycle controller adds the taint of a cordon, and removes it again

They are disabled at first, as on a server without a controller manager. `gap` sets when they write:
at every possible place between the requests of a client, deterministically.
"""

from typing import Any, Literal

import msgspec

from simulator.kube import server_metadata
from simulator.kube.paths import RequestTarget
from simulator.kube.request import ApiRequest
from simulator.kube.status import StatusError
from simulator.kube.store import ObjectStore

Object = dict[str, Any]
Gap = int | Literal["next write"]
"""After how many further requests they write: 0 = right after the causing request, before its
response arrives. `next write` = right before the next write of the same object, whatever is read
before: this is the worst case."""

MANAGER = "kube-controller-manager"
CORDON_TAINT = "node.kubernetes.io/unschedulable"
_WATCHED = frozenset({"Deployment", "Node"})


class DueWrite(msgspec.Struct):
    """A write that is still due."""

    kind: str
    key: str
    left: int
    """Requests that are answered before it, where the gap is a number."""
    times: int


class Controllers:
    """Both controllers, and the time at which they write."""

    def __init__(self, store: ObjectStore) -> None:
        self.enabled = False
        self.gap: Gap = 0
        self.times = 1
        """Status writes per generation of a Deployment; a rollout of many pods makes several."""
        self._store = store
        self._since = store.version
        self._due: list[DueWrite] = []

    def enable(self, gap: Gap = 0, *, times: int = 1) -> None:
        """Enable the writes from now on; earlier changes cause none."""
        with self._store.changed:
            self.enabled, self.gap, self.times = True, gap, times
            self._since = self._store.version
            self._due.clear()

    def before(self, request: ApiRequest, target: RequestTarget) -> None:
        """Send the writes that are due right before this request."""
        if not self.enabled or self.gap != "next write":
            return
        if request.method == "GET" or "dryRun" in request.query:
            return
        key = server_metadata.build_key(target.namespace, target.name)
        with self._store.changed:
            for due in [d for d in self._due if (d.kind, d.key) == (target.kind.key, key)]:
                self._write(due)

    def after(self) -> None:
        """Process what a request has changed, and send the writes that are due now."""
        if not self.enabled:
            return
        with self._store.changed:
            for due in self._due:
                due.left -= 1
            self._notice()
            if self.gap == "next write":
                return
            for due in [d for d in self._due if d.left <= 0]:
                self._write(due)

    def rest(self) -> None:
        """Send all writes that are still due, now."""
        with self._store.changed:
            self._notice()
            while self.enabled and self._due:
                self._write(self._due[0])

    def _notice(self) -> None:
        try:
            self._since, changes = self._store.changes(self._since)
        except StatusError:  # too many changes: the history does not have it any more
            self._since = self._store.version
            return
        left = self.gap if isinstance(self.gap, int) else 0
        for change in changes:
            if change.kind not in _WATCHED:
                continue
            self._due = [d for d in self._due if (d.kind, d.key) != (change.kind, change.key)]
            if change.type != "DELETED" and self._body(change.kind, change.key, 0) is not None:
                times = self.times if change.kind == "Deployment" else 1
                self._due.append(DueWrite(change.kind, change.key, left, times))

    def _write(self, due: DueWrite) -> None:
        body = self._body(due.kind, due.key, due.times)
        due.times -= 1
        if due.times <= 0 or body is None:
            self._due.remove(due)
        if body is None:
            return
        namespace, _, name = due.key.rpartition("/")
        part: Literal["", "status"] = "status" if due.kind == "Deployment" else ""
        self._store.patch(due.kind, name, namespace, body, subresource=part, manager=MANAGER)
        self._since = self._store.version

    def _body(self, kind: str, key: str, times: int) -> Object | None:
        """Return what the controller of a kind writes on an object now; None = nothing."""
        namespace, _, name = key.rpartition("/")
        current = self._store.get(kind, name, namespace)
        if current is None:
            return None
        return (
            _add_taints(current, self._store.now())
            if kind == "Node"
            else _build_observed_status(current, times)
        )


def _build_observed_status(deployment: Object, times: int) -> Object | None:
    """Return the status of a Deployment whose controller has seen its generation."""
    generation = deployment["metadata"].get("generation", 0)
    status = deployment.get("status") or {}
    if status.get("observedGeneration", 0) >= generation and times < 1:
        return None
    others = [c for c in status.get("conditions") or () if c["type"] != "Progressing"]
    progress = {
        "type": "Progressing",
        "status": "True",
        "reason": "ReplicaSetUpdated",
        "message": f"generation {generation} is progressing: {times} to go",
    }
    conditions = [*others, progress] if times else [*others]
    return {"status": {"observedGeneration": generation, "conditions": conditions}}


def _add_taints(node: Object, now: float) -> Object | None:
    """Return the taints of a node as its cordon asks for; None = they are so already."""
    spec = node.get("spec") or {}
    taints = list(spec.get("taints") or ())
    others = [t for t in taints if t.get("key") != CORDON_TAINT]
    cordoned = bool(spec.get("unschedulable"))
    if cordoned == (len(others) < len(taints)):
        return None
    taint = {
        "key": CORDON_TAINT,
        "effect": "NoSchedule",
        "timeAdded": server_metadata.format_time(now),
    }
    return {"spec": {"taints": [*others, *([taint] if cordoned else [])] or None}}
