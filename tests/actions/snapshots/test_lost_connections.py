"""A connection that is lost at any call of the stream is temporary; what was read counts."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from websocket import WebSocketConnectionClosedException

from actions.snapshots.containers import ContainerRef, KubernetesRunner
from fallow.errors import TemporaryError

CONTAINER = ContainerRef("ml", "notebook-0", "main")
CALLS = ("update", "read_stdout", "read_stderr", "write_channel")


class Stream:
    """A stream with one piece of output, whose connection is lost at one of its calls."""

    subprotocol = "v5.channel.k8s.io"

    def __init__(self, lost_at: str) -> None:
        self.sock = SimpleNamespace(shutdown=lambda: None)
        self._lost_at, self.is_lost = lost_at, False

    def update(self, **_: Any) -> None:
        self._lose("update")

    def read_stdout(self, **_: Any) -> bytes:
        self._lose("read_stdout")
        return b"" if self.is_lost else b"piece"

    def read_stderr(self, **_: Any) -> bytes:
        self._lose("read_stderr")
        return b""

    def write_channel(self, *_: Any) -> None:
        self._lose("write_channel")

    def read_channel(self, *_: Any) -> bytes:
        return b""

    def peek_channel(self, *_: Any) -> bytes:
        return b""

    def is_open(self) -> bool:
        return not self.is_lost

    def _lose(self, call: str) -> None:
        if call == self._lost_at:
            self.is_lost = True
            raise WebSocketConnectionClosedException("Connection to remote host was lost.")


def run(
    monkeypatch: pytest.MonkeyPatch, lost_at: str, stdin: list[bytes] | None
) -> Iterator[bytes]:
    stream: Any = Stream(lost_at)
    monkeypatch.setattr(KubernetesRunner, "_open", lambda *_: stream)
    return KubernetesRunner(None).run(CONTAINER, ["tar"], stdin)


@pytest.mark.parametrize("lost_at", CALLS)
def test_a_lost_connection_is_temporary(monkeypatch: pytest.MonkeyPatch, lost_at: str) -> None:
    stdin = [b"block"] if lost_at == "write_channel" else None
    pieces = run(monkeypatch, lost_at, stdin)
    output: list[bytes] = []
    with pytest.raises(TemporaryError, match="the stream from ml/notebook-0 broke off"):
        output.extend(pieces)
    assert output == ([b"piece"] if lost_at == "read_stderr" else [])
