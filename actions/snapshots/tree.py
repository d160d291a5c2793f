"""Hash a tree of files from the tar stream that carries it.

Two trees are equal when names, kinds, modes, link targets and contents are equal. Owners and times
are not compared, because a container may not be able to set them.
"""

import hashlib
import io
import tarfile
from collections.abc import Callable, Iterator
from typing import Any, cast

import msgspec

from fallow.errors import FallowError

BLOCK = 1 << 20


class TooLarge(FallowError):  # noqa: N818  (a refusal, not a defect)
    """Report a tree with more bytes than may be kept."""


class FileTree(msgspec.Struct, frozen=True):
    """The content of a tar stream: hash, regular files, and bytes of the stream."""

    hash: str
    files: int
    bytes: int


class _Stream(io.RawIOBase):
    """Pieces as a file to read from; every piece is also written to `sink`."""

    def __init__(
        self, pieces: Iterator[bytes], sink: Callable[[bytes], object], max_bytes: int | None
    ) -> None:
        self._pieces, self._sink, self._max_bytes = pieces, sink, max_bytes
        self._buffer = b""
        self.bytes_read = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray) -> int:  # type: ignore[override]
        while not self._buffer:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self.bytes_read += len(piece)
            if self._max_bytes is not None and self.bytes_read > self._max_bytes:
                raise TooLarge(f"more than {self._max_bytes} bytes")
            self._sink(piece)
            self._buffer = piece
        count = min(len(buffer), len(self._buffer))
        buffer[:count] = self._buffer[:count]
        self._buffer = self._buffer[count:]
        return count


def read_tree(
    pieces: Iterator[bytes],
    sink: Callable[[bytes], object] = lambda _piece: None,
    *,
    max_bytes: int | None = None,
) -> FileTree:
    """Return the tree of an uncompressed tar stream; every byte is also written to `sink`.

    Raises:
        TooLarge: the stream has more than `max_bytes` bytes.
        FallowError: it is no tar, or it ends early.
    """
    stream = _Stream(pieces, sink, max_bytes)
    lines: list[bytes] = []
    files = 0
    try:
        buffered: Any = io.BufferedReader(cast("io.RawIOBase", stream), BLOCK)
        with tarfile.open(fileobj=buffered, mode="r|") as archive:
            for member in archive:
                content = archive.extractfile(member) if member.isreg() else None
                files += content is not None
                lines.append(_line(member, content))
        while buffered.read(BLOCK):  # padding of the last record
            pass
    except tarfile.TarError as error:
        raise FallowError(f"the archive is not whole: {error}") from error
    digest = hashlib.sha256()
    for line in sorted(lines):
        digest.update(line)
    return FileTree(digest.hexdigest(), files, stream.bytes_read)


def _line(member: tarfile.TarInfo, content: Any) -> bytes:
    """Return 32 bytes that represent one member."""
    content_hash = ""
    if content is not None:
        digest = hashlib.sha256()
        while block := content.read(BLOCK):
            digest.update(block)
        content_hash = digest.hexdigest()
    kind = b"-" if member.isreg() else member.type
    name = member.name.strip("/").removeprefix("./")
    text = f"{kind!r}\x1f{member.mode & 0o7777:o}\x1f{name}\x1f{member.linkname}\x1f{content_hash}"
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).digest()
