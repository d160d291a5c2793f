"""Serve watches: changes as they happen, bookmarks, and the ways in which a stream ends."""

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from simulator.kube.faults import Faults
from simulator.kube.history import StoreChange
from simulator.kube.kinds import ApiKind
from simulator.kube.paths import RequestTarget
from simulator.kube.selectors import Test, parse_field_selector, parse_label_selector
from simulator.kube.status import StatusError, build_bad_request
from simulator.kube.store import ObjectStore

Object = dict[str, Any]

BOOKMARK_S = 60.0
LONGEST_S = 2700.0
"""Length of a watch without its own timeout (the real server takes 30 to 60 minutes)."""
WAKE_S = 0.1
"""How often a watch without events checks whether its client is still connected."""
CUT = {"type": "CUT"}


class ApiWatch:
    """One open watch; `lines` yields its events, None when there is no event."""

    def __init__(
        self,
        store: ObjectStore,
        target: RequestTarget,
        query: Mapping[str, str],
        faults: Faults,
        *,
        bookmark_s: float = BOOKMARK_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store, self._target, self._faults = store, target, faults
        self._clock, self._bookmark_s = clock, bookmark_s
        self._test = _test(target.kind, target.namespace, query)
        self._marks = query.get("allowWatchBookmarks") in {"true", "1"}
        self._seen_marks = faults.marks
        seconds = query.get("timeoutSeconds") or ""
        self._lasts_s = float(seconds) if seconds.isdecimal() and seconds != "0" else LONGEST_S
        version_text = query.get("resourceVersion") or "0"
        if not version_text.isdecimal():
            raise build_bad_request(f'Invalid value: "{version_text}": invalid resource version')
        self._since = int(version_text)
        if faults.refuse_watches and 0 < self._since < store.history.forgotten:
            raise StatusError(410, "Expired", f"too old resource version: {self._since}")

    def lines(self) -> Iterator[Object | None]:
        """Yield events until the timeout, the server's end, or the loss of history."""
        end = self._clock() + self._lasts_s
        marked = self._clock()
        at = self._since
        if not at:
            at, events = self._everything()
            yield from events
        while self._clock() < end and not self._faults.closing:
            if self._faults.take_expired_stream():
                yield _build_expired(at)
                return
            if self._cut():
                yield CUT
                return
            try:
                version, marks, changes = self._news(at, min(end - self._clock(), WAKE_S))
            except StatusError as error:
                yield {"type": "ERROR", "object": error.body()}
                return
            event_list = [e for e in map(self._event, changes) if e is not None]
            yield from event_list
            at = max(at, version)
            due = self._clock() >= marked + self._bookmark_s or self._seen_marks != marks
            self._seen_marks = marks
            if self._marks and due:
                marked = self._clock()
                yield self._bookmark(at)
            elif not event_list:
                yield None

    def _everything(self) -> tuple[int, list[Object]]:
        with self._store.changed:
            at = self._store.version
            items = [
                o
                for k, o in self._store.sorted(self._target.kind)
                if self._test(_build_keyed(k, o))
            ]
        return at, [{"type": "ADDED", "object": o} for o in items]

    def _cut(self) -> bool:
        # Bookmarks are requested under this lock: one requested before the cut is sent before it.
        with self._store.changed:
            if self._faults.away:
                return True
            return self._seen_marks == self._faults.marks and self._faults.take_cut_stream()

    def _news(self, at: int, wait_s: float) -> tuple[int, int, list[StoreChange]]:
        """Return the version, the bookmarks requested up to it, and the changes of this kind."""
        kind = self._target.kind.key
        with self._store.changed:
            if self._store.version <= at and self._seen_marks == self._faults.marks:
                self._store.changed.wait(max(wait_s, 0.0))
            version, changes = self._store.changes(at)
            marks = self._faults.marks
        return version, marks, [c for c in changes if c.kind == kind]

    def _event(self, change: StoreChange) -> Object | None:
        """Return this watch's event for a change: objects enter and leave its selection."""
        was = change.before is not None and self._test(_build_keyed(change.key, change.before))
        is_ = change.type != "DELETED" and self._test(_build_keyed(change.key, change.object))
        if is_:
            return {"type": "MODIFIED" if was else "ADDED", "object": change.object}
        if not was:
            return None
        left = change.object if change.type == "DELETED" else change.before or change.object
        meta = {**left["metadata"], "resourceVersion": str(change.version)}
        return {"type": "DELETED", "object": {**left, "metadata": meta}}

    def _bookmark(self, at: int) -> Object:
        meta: Object = {"resourceVersion": str(at), "creationTimestamp": None}
        kind = {"kind": self._target.kind.kind, "apiVersion": self._target.api_version}
        return {"type": "BOOKMARK", "object": {**kind, "metadata": meta}}


class _Keyed(msgspec.Struct, frozen=True):
    key: str
    object: Object


def _build_keyed(key: str, item: Object) -> _Keyed:
    return _Keyed(key, item)


def _test(kind: ApiKind, namespace: str, query: Mapping[str, str]) -> Callable[[_Keyed], bool]:
    selector_tests = (
        parse_label_selector(query.get("labelSelector")),
        parse_field_selector(kind, query.get("fieldSelector")),
    )
    tests: list[Test] = [t for t in selector_tests if t is not None]
    head = f"{namespace}/" if namespace and kind.namespaced else ""
    return lambda k: k.key.startswith(head) and all(test(k.object) for test in tests)


def _build_expired(at: int) -> Object:
    return {
        "type": "ERROR",
        "object": StatusError(410, "Expired", f"too old resource version: {at}").body(),
    }
