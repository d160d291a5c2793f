"""Keep a collection current: list, then watch with bookmarks; list again after lost history.

An expired version shows in two forms, HTTP 410 when a watch opens and an `ERROR` line with code
410 inside a stream that answered 200. Both mean: list again.
"""

import threading
from collections.abc import Callable, Iterator
from typing import Generic, Literal, TypeVar

import msgspec

from collectors.kube.readable import PageDecoder, Reject, load_object, read_object
from collectors.kube.shapes import Node, Partial, Pod, WatchEvent
from fallow.errors import UNREADABLE_JSON, SourceError, TemporaryError
from fallow.kube.api import ApiConnection, ApiError, LineStream
from fallow.kube.api_objects import ApiStatus
from fallow.kube.listing import EXPIRED, Listing
from fallow.kube.values import get_map

T = TypeVar("T", bound=Partial | Node | Pod)
Kind = Literal["LISTING", "LISTED", "SYNCED", "ADDED", "MODIFIED", "DELETED"]

WATCH_S = 240
"""Requested length of a watch; bookmarks arrive about every 60 s."""

SILENCE_S = 30
"""How long after that a connection may have no data before it counts as broken."""

_change = msgspec.json.Decoder(WatchEvent)
_partial = msgspec.json.Decoder(Partial)
_error = msgspec.json.Decoder(ApiStatus)


class WatchStep(msgspec.Struct, Generic[T], frozen=True):
    """One thing learnt: an object as listed or changed, or that a list begins or has been read."""

    kind: Kind
    object: T | None = None


class WatchProgress(msgspec.Struct):
    """What a watch did so far; one thread writes the counts, others read them."""

    resource: str = ""
    lists: int = 0
    streams: int = 0
    """Watches opened; all but the first are restarts."""
    events: int = 0
    expiries: int = 0
    """Versions that the server had dropped (410), each followed by a list."""
    failures: int = 0
    error: str = ""
    """The last error; empty once the server responds again."""
    refused: int = 0
    """The code of the server's last refusal; 0 = it did not refuse."""
    dead: bool = False
    """The thread ended because of an error in Fallow."""


class WatchExpiredError(Exception):
    """The server has dropped the version from which the watch should continue."""


class ListWatch(Generic[T]):
    """One collection; `steps` runs until `stop`, through every kind of interruption."""

    def __init__(
        self,
        api: ApiConnection,
        path: str,
        shape: type[T],
        *,
        limit: int,
        on_failure: Callable[[str], None] = lambda _: None,
        reject: Reject = lambda _: None,
        on_contact: Callable[[], None] = lambda: None,
        progress: WatchProgress | None = None,
    ) -> None:
        self._api, self._path, self._limit = api, path, limit
        self._on_contact, self.progress = on_contact, progress or WatchProgress()
        self._pages, self._shape, self._reject = PageDecoder(shape, reject), shape, reject
        self._on_failure = on_failure
        self._open: LineStream | None = None

    def steps(self, stop: threading.Event) -> Iterator[WatchStep[T]]:
        """Yield what is listed, `SYNCED`, what changes; list again after an expiry."""
        version, failures, progress = "", 0, self.progress
        while not stop.is_set():
            try:
                if not version:
                    listing = Listing(self._api, self._path, self._pages, limit=self._limit)
                    yield from self._list(listing)
                    version = listing.resource_version
                silent = True
                for step, at in self._watch(version, stop):
                    version, failures, silent = at or version, 0, False
                    if step is not None:
                        yield step
                if silent:  # a server that closes the connection at once
                    failures += 1
                    self._wait(stop, failures)
            except WatchExpiredError:
                version = ""
                progress.expiries += 1
                failures += 1
                self._wait(stop, failures)
            except (SourceError, TemporaryError) as error:
                if stop.is_set():
                    return
                progress.failures += 1
                progress.error = str(error)
                progress.refused = error.code if isinstance(error, ApiError) else 0
                self._on_failure(str(error))
                failures += 1
                self._wait(stop, failures)

    def _list(self, listing: Listing[T]) -> Iterator[WatchStep[T]]:
        """Yield a whole list; a restart is reported, because earlier objects may be deleted."""
        self.progress.lists += 1
        restarts = -1
        for page in listing:
            if listing.restarts != restarts:
                restarts = listing.restarts
                yield WatchStep("LISTING")
            yield from (WatchStep("LISTED", item) for item in page)
        if listing.restarts != restarts:  # it is empty
            yield WatchStep("LISTING")
        yield WatchStep("SYNCED")

    def close(self) -> None:
        """End an open watch; may be called from another thread after `stop` is set."""
        if self._open is not None:
            self._open.close()

    def _wait(self, stop: threading.Event, failures: int) -> None:
        if failures and not stop.is_set():
            self._api.pause(failures - 1)

    def _watch(
        self, version: str, stop: threading.Event
    ) -> Iterator[tuple[WatchStep[T] | None, str]]:
        """Yield changes with the version each leads to; a bookmark is a version alone."""
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": WATCH_S,
        }
        try:
            self._open = self._api.stream(self._path, query, read_timeout_s=WATCH_S + SILENCE_S)
        except ApiError as error:
            if error.code == EXPIRED:
                raise WatchExpiredError from error
            raise
        if stop.is_set():  # `close` was called before there was a stream to close
            self._open.close()
            return
        self.progress.streams += 1
        self.progress.error, self.progress.refused = "", 0
        for line in self._open:
            read = self._read(line)
            self.progress.events += read[0] is not None
            self._on_contact()
            yield read

    def _read(self, line: bytes) -> tuple[WatchStep[T] | None, str]:
        try:
            try:
                change = _change.decode(line)
            except (ValueError, RecursionError):  # of the object: it costs itself
                change = _change.decode(msgspec.json.encode(load_object(line)))
            if change.type == "ERROR":
                status = _error.decode(change.object)
                if status.code == EXPIRED:
                    raise WatchExpiredError
                raise ApiError(self._path, status.code or 0, status)
            at = _read_version(change.object)
            if change.type == "BOOKMARK":
                return None, at
            if change.type not in {"ADDED", "MODIFIED", "DELETED"}:
                raise SourceError(f"{self._path}: a watch said {change.type!r}")
            item = read_object(change.object, self._shape, self._reject)
            return None if item is None else WatchStep(change.type, item), at  # type: ignore[arg-type]
        except UNREADABLE_JSON as error:
            raise SourceError(f"{self._path}: a watch line is not JSON: {error}") from error


def _read_version(item: msgspec.Raw) -> str:
    """Return the version of an object, which a bookmark has alone; empty = it is unreadable."""
    try:
        return _partial.decode(item).metadata.resource_version
    except (ValueError, RecursionError):
        return str(get_map(load_object(bytes(item)).get("metadata")).get("resourceVersion") or "")
