"""A container may say anything, without end or a byte a minute: its snapshot fails, in bounds."""

import base64
import hashlib
import io
import json
import tarfile
import tracemalloc
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from websocket import ABNF

from actions.snapshots import archive, tree
from actions.snapshots.containers import COMMAND_S, ContainerRef, KubernetesRunner
from actions.snapshots.tree import TooLarge, read_tree
from fallow.errors import FallowError, TemporaryError
from tests.servers.odd_answers import OddServer, Script, hold, repeat, serve_odd

CONTAINER = ContainerRef("lab", "nb-0", "notebook")
GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


def frame(channel: int, data: bytes, *, fin: int = 1) -> bytes:
    """Return a frame of a server, which does not mask."""
    whole = ABNF(fin, 0, 0, 0, ABNF.OPCODE_BINARY, 0, bytes([channel]) + data)
    return bytes(whole.format())


def huge_frame(data: bytes) -> bytes:
    """Return the beginning of a frame of 2^62 bytes."""
    return b"\x82\x7f" + (1 << 62).to_bytes(8, "big") + data


def status(**fields: Any) -> bytes:
    return frame(3, json.dumps(fields).encode())


OUTPUT = frame(1, b"x" * 32_000)
ODD: dict[str, Script] = {
    "output without end": repeat(b"", OUTPUT),
    "errors without end": repeat(b"", frame(2, b"x" * 32_000)),
    "a status without end": repeat(b"", frame(3, b"[" * 32_000)),
    "pings without end": repeat(b"", b"\x89\x7d" + b"x" * 125),
    "a frame without end": repeat(huge_frame(b"\x01"), OUTPUT),
    "a message without end": repeat(frame(1, b"x", fin=0), b"\x00\x7e\x7d\x00" + b"x" * 32_000),
    "silence": hold(b""),
    "half a frame": hold(huge_frame(b"\x01x")),
    "text": hold(b"no frame of a WebSocket"),
    "a status 100,000 deep": hold(frame(3, b'{"x":' * 100_000)),
    "a status that is a list": hold(frame(3, b"[]")),
    "a code of 5,000 digits": hold(
        status(status="Failure", details={"causes": [{"message": "9" * 5000}]})
    ),
    "a code that is a list": hold(status(status="Failure", details={"causes": [[]]})),
}


@pytest.fixture
def runner() -> Any:
    from kubernetes import client

    def connect(url: str, **named: Any) -> KubernetesRunner:
        configuration = client.Configuration()
        configuration.host = url
        return KubernetesRunner(client.ApiClient(configuration), **{"timeout_s": 0.3, **named})

    return connect


def upgraded(script: Script, requests: list[bytes]) -> Script:
    """Answer the WebSocket's handshake, then run a script."""

    def run(connection: Any, ending: Any) -> None:
        key = requests[-1].partition(b"Sec-WebSocket-Key: ")[2].partition(b"\r\n")[0]
        accept = base64.b64encode(hashlib.sha1(key + GUID).digest())
        connection.sendall(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Protocol: v5.channel.k8s.io\r\nSec-WebSocket-Accept: "
            + accept + b"\r\n\r\n"
        )  # fmt: skip
        script(connection, ending)

    return run


@contextmanager
def serve_upgraded(script: Script) -> Iterator[OddServer]:
    """Serve a command that says what a script sends."""
    servers: list[OddServer] = []
    with serve_odd(lambda _path: upgraded(script, servers[0].requests)) as server:
        servers.append(server)
        yield server


@pytest.mark.parametrize("name", ODD)
def test_a_command_is_bounded_whatever_it_says(runner: Any, name: str) -> None:
    tracemalloc.start()
    with serve_upgraded(ODD[name]) as server:
        with pytest.raises(FallowError) as caught:
            b"".join(runner(server.url).run(CONTAINER, ["pip", "freeze"]))
        peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(str(caught.value)) < 500
    assert peak < 96 << 20


def test_a_byte_at_a_time_is_given_up_in_minutes(runner: Any) -> None:
    minutes = iter(range(0, 10**9, 60))
    for script in (repeat(b"", frame(1, b"x"), 0.001), repeat(huge_frame(b"\x01"), b"x", 0.001)):
        with serve_upgraded(script) as server:
            shell = runner(server.url, ticks=lambda: float(next(minutes)))
            with pytest.raises(TemporaryError, match=f"did not end within {COMMAND_S:.0f} s"):
                b"".join(shell.run(CONTAINER, ["tar"]))


def test_a_handshake_without_end_is_given_up(runner: Any) -> None:
    endless = repeat(b"HTTP/1.1 101 S\r\nX: ", b"x", 0.01)
    with (
        serve_odd(lambda _path: endless) as server,
        pytest.raises(TemporaryError, match=r"within 0\.3 s"),
    ):
        b"".join(runner(server.url).run(CONTAINER, ["tar"]))


def pack(*members: tarfile.TarInfo, form: int = tarfile.PAX_FORMAT) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=form) as file:
        for member in members:
            file.addfile(member)
    return packed.getvalue()


def make_header(kind: bytes, size: int) -> bytes:
    member = tarfile.TarInfo("x")
    member.type, member.size = kind, size
    return member.tobuf(tarfile.GNU_FORMAT)


def build_sparse(number: str) -> bytes:
    member = tarfile.TarInfo("x")
    member.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0",
                          "GNU.sparse.realsize": number, "GNU.sparse.name": "y"}  # fmt: skip
    return pack(member)


TREES = {
    "a long name of 8 GB": make_header(tarfile.GNUTYPE_LONGNAME, 8 << 30),
    "attributes of 8 GB": make_header(tarfile.XHDTYPE, 8 << 30),
    "attributes of all of 8 GB": make_header(tarfile.XGLTYPE, 8 << 30),
    "2,000 headers in one another": (make_header(tarfile.XHDTYPE, 0) * 2000),
    "a sparse file of no number": build_sparse("x"),
    "a sparse file of 5,000 digits": build_sparse("9" * 5000),
    "a size below zero": make_header(tarfile.REGTYPE, 0)[:124] + b"\xff" * 12 + bytes(376),
}


@pytest.mark.parametrize("name", TREES)
def test_a_stream_that_is_no_tree_is_refused_in_bounds(name: str) -> None:
    def stream() -> Iterator[bytes]:
        yield TREES[name]
        yield from (bytes(1 << 20) for _ in range(300))

    tracemalloc.start()
    with pytest.raises(FallowError, match="the archive is not whole"):
        read_tree(stream())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 32 << 20


def test_files_are_counted_and_small_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    packed = pack(*(tarfile.TarInfo(f"work/file-{n}") for n in range(2_000)))
    tracemalloc.start()
    read_tree(packed[n : n + 32_768] for n in range(0, len(packed), 32_768))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2_000 * 500 + (3 << 20)
    monkeypatch.setattr(tree, "MOST_MEMBERS", 1_999)
    with pytest.raises(TooLarge, match="more than 1,999 files"):
        read_tree(iter([packed]))


def test_an_archive_of_zeros_is_unpacked_in_pieces() -> None:
    packer = zlib.compressobj(9, zlib.DEFLATED, archive.GZIP)
    packed = b"".join(packer.compress(bytes(1 << 20)) for _ in range(64)) + packer.flush()
    sizes = [len(p) for p in archive._unpack_archive(iter([packed]), lambda _piece: None)]
    assert sum(sizes) == 64 << 20
    assert max(sizes) <= tree.BLOCK
