"""Keep a world in a file: its scenario, how far it went, and the requests of its API's clients.

A world follows from its scenario, its seed and the writes of clients. So a file of these restores
it: object for object, with the same uids and versions (`simulator.restore`).

    scenario ─► advance ─► server ─► request ─► request ─► advance ─► checkpoint ─► ...

An advance is written before it runs, and a request before its answer is sent. A process that is
killed at any time loses nothing that anybody has seen: the next one runs the last lines again.
"""

import os
from pathlib import Path
from typing import Any, BinaryIO, Self

import msgspec

from fallow.errors import SourceError
from simulator.kube.request import ApiRequest

KEPT_HEADERS = ("content-type", "user-agent")
"""Headers that change what a write stores."""


class ScenarioEntry(msgspec.Struct, frozen=True, tag="scenario"):
    """The parameters from which the world is built; whoever builds it knows their meaning."""

    parameters: dict[str, Any]


class AdvanceEntry(msgspec.Struct, frozen=True, tag="advance"):
    """The world advances to a time, seconds since the epoch."""

    until_s: float


class ServerEntry(msgspec.Struct, frozen=True, tag="server"):
    """An API server starts to serve the world."""


class RequestEntry(msgspec.Struct, frozen=True, tag="request"):
    """A request that may have changed the store, and the store's version after it."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: str
    version: int


class CheckpointEntry(msgspec.Struct, frozen=True, tag="checkpoint"):
    """All until here is stored elsewhere too: the store's hash, and the devices' counters."""

    now_s: float
    digest: str
    last_tick_s: float
    energy_mj: list[float]
    temp_c: list[float]
    xid: list[int]


Entry = ScenarioEntry | AdvanceEntry | ServerEntry | RequestEntry | CheckpointEntry
_DECODER = msgspec.json.Decoder(Entry)


class WorldLog:
    """The file of a world, open to append entries."""

    def __init__(self, path: Path) -> None:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        self._file: BinaryIO = os.fdopen(descriptor, "ab", buffering=0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def append(self, entry: Entry) -> None:
        """Write an entry; the operating system has it when this returns."""
        self._file.write(msgspec.json.encode(entry) + b"\n")

    def append_request(self, request: ApiRequest, version: int) -> None:
        """Write a request that a server has handled."""
        headers = {k: v for k, v in request.headers.items() if k in KEPT_HEADERS}
        body = request.body.decode()
        entry = RequestEntry(request.method, request.path, request.query, headers, body, version)
        self.append(entry)


def read_entries(path: Path) -> list[Entry]:
    """Return the entries of a file, and cut off a last line that its writer did not finish.

    Raises:
        SourceError: a line is no entry.
    """
    data = path.read_bytes()
    complete = data[: data.rfind(b"\n") + 1]
    if len(complete) < len(data):
        os.truncate(path, len(complete))
    try:
        return [_DECODER.decode(line) for line in complete.splitlines()]
    except msgspec.DecodeError as error:
        raise SourceError(f"{path} has a line that is no entry: {error}") from error
