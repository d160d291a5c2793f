"""A tree of files as one hash, taken from the tar stream that carries it.

Two trees are equal when names, kinds, modes, link targets and contents are; owners and times are
not compared, because a container may not be able to set them.
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


class Tree(msgspec.Struct, frozen=True):
    """What a tar stream held: hash, regular files, and bytes of the stream."""

    hash: str
    files: int
    bytes: int


class _Stream(io.RawIOBase):
    """Pieces as a file to read from; every piece goes to `sink` as it passes."""

    def __init__(
        self, pieces: Iterator[bytes], sink: Callable[[bytes], object], most: int | None
    ) -> None:
        self._pieces, self._sink, self._most = pieces, sink, most
        self._rest = b""
        self.passed = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray) -> int:  # type: ignore[override]
        while not self._rest:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self.passed += len(piece)
            if self._most is not None and self.passed > self._most:
                raise TooLarge(f"more than {self._most} bytes")
            self._sink(piece)
            self._rest = piece
        count = min(len(buffer), len(self._rest))
        buffer[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count


def read_tree(
    pieces: Iterator[bytes],
    sink: Callable[[bytes], object] = lambda _piece: None,
    *,
    most: int | None = None,
) -> Tree:
    """Return the tree that an uncompressed tar stream holds; every byte also goes to `sink`.

    Raises:
        TooLarge: the stream has more than `most` bytes.
        FallowError: it is no tar, or it breaks off.
    """
    stream = _Stream(pieces, sink, most)
    lines: list[bytes] = []
    files = 0
    try:
        buffered: Any = io.BufferedReader(cast("io.RawIOBase", stream), BLOCK)
        with tarfile.open(fileobj=buffered, mode="r|") as archive:
            for member in archive:
                content = archive.extractfile(member) if member.isreg() else None
                files += content is not None
                lines.append(_line(member, content))
        while buffered.read(BLOCK):  # what pads the last record
            pass
    except tarfile.TarError as error:
        raise FallowError(f"the archive is not whole: {error}") from error
    digest = hashlib.sha256()
    for line in sorted(lines):
        digest.update(line)
    return Tree(digest.hexdigest(), files, stream.passed)


def _line(member: tarfile.TarInfo, content: Any) -> bytes:
    """Return 32 bytes that stand for one member."""
    inside = ""
    if content is not None:
        digest = hashlib.sha256()
        while block := content.read(BLOCK):
            digest.update(block)
        inside = digest.hexdigest()
    kind = b"-" if member.isreg() else member.type
    name = member.name.strip("/").removeprefix("./")
    said = f"{kind!r}\x1f{member.mode & 0o7777:o}\x1f{name}\x1f{member.linkname}\x1f{inside}"
    return hashlib.sha256(said.encode("utf-8", "surrogateescape")).digest()
