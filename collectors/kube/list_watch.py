"""Keep a collection current: list, then watch with bookmarks, and list anew when history is gone.

An expired version shows in two forms, HTTP 410 when a watch opens and an `ERROR` line with code
410 inside a stream that answered 200. Both mean: list again.
"""

import threading
from collections.abc import Callable, Iterator
from typing import Generic, Literal, TypeVar

import msgspec

from collectors.kube.shapes import Change, Partial
from fallow.errors import SourceError, TemporaryError
from fallow.kube.api import Api, ApiError, LineStream
from fallow.kube.pages import GONE, Listing
from fallow.kube.shapes import Page, Status

T = TypeVar("T")
Kind = Literal["LISTED", "SYNCED", "ADDED", "MODIFIED", "DELETED"]

WATCH_S = 240
"""How long a watch is asked to last; bookmarks come about every 60 s."""

SILENCE_S = 30
"""How long after that a connection may stay silent before it counts as broken."""

_change = msgspec.json.Decoder(Change)
_partial = msgspec.json.Decoder(Partial)
_error = msgspec.json.Decoder(Status)


class Step(msgspec.Struct, Generic[T], frozen=True):
    """One thing learnt: an object as listed or changed, or that a whole list has been read."""

    kind: Kind
    object: T | None = None


class Expired(Exception):  # noqa: N818  (it ends a watch, it is no failure)
    """The version watched from is gone."""


class ListWatch(Generic[T]):
    """One collection; `steps` runs until `stop`, through every kind of interruption."""

    def __init__(
        self,
        api: Api,
        path: str,
        shape: type[T],
        *,
        limit: int,
        on_failure: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._api, self._path, self._limit = api, path, limit
        self._pages: msgspec.json.Decoder[Page[T]] = msgspec.json.Decoder(Page[shape])  # type: ignore[valid-type]
        self._objects: msgspec.json.Decoder[T] = msgspec.json.Decoder(shape)
        self._on_failure = on_failure
        self._open: LineStream | None = None

    def steps(self, stop: threading.Event) -> Iterator[Step[T]]:
        """Yield what is listed, `SYNCED`, what changes; after an expiry list anew."""
        version, failures = "", 0
        while not stop.is_set():
            try:
                if not version:
                    listing = Listing(self._api, self._path, self._pages, limit=self._limit)
                    for page in listing:
                        yield from (Step("LISTED", item) for item in page)
                    version = listing.resource_version
                    yield Step("SYNCED")
                for step, at in self._watch(version):
                    version, failures = at, 0
                    if step is not None:
                        yield step
            except Expired:
                version = ""
                failures += 1
                self._wait(stop, failures)
            except (SourceError, TemporaryError) as error:
                if stop.is_set():
                    return
                self._on_failure(str(error))
                failures += 1
                self._wait(stop, failures)

    def close(self) -> None:
        """End an open watch; may be called from another thread after `stop` is set."""
        if self._open is not None:
            self._open.close()

    def _wait(self, stop: threading.Event, failures: int) -> None:
        if failures and not stop.is_set():
            self._api.pause(failures - 1)

    def _watch(self, version: str) -> Iterator[tuple[Step[T] | None, str]]:
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
            if error.code == GONE:
                raise Expired from error
            raise
        for line in self._open:
            yield self._read(line)

    def _read(self, line: bytes) -> tuple[Step[T] | None, str]:
        try:
            change = _change.decode(line)
            if change.type == "ERROR":
                status = _error.decode(change.object)
                if status.code == GONE:
                    raise Expired
                raise ApiError(self._path, status.code or 0, status)
            at = _partial.decode(change.object).metadata.resource_version
            if change.type == "BOOKMARK":
                return None, at
            if change.type not in {"ADDED", "MODIFIED", "DELETED"}:
                raise SourceError(f"{self._path}: a watch said {change.type!r}")
            return Step(change.type, self._objects.decode(change.object)), at  # type: ignore[arg-type]
        except msgspec.DecodeError as error:
            raise SourceError(f"{self._path}: a watch line is not JSON: {error}") from error
