"""Hash a tree of files from the tar stream that carries it.

Two trees are equal when names, kinds, modes, link targets and contents are equal. Owners and times
are not compared, because a container may not be able to set them. Of files that are hard links of
each other a tar stream has the first as a file and the others as its links. Which one is first
depends on the file system, so that the hash takes the first by name.
"""

import hashlib
import io
import tarfile
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, cast

import msgspec

from fallow.errors import FallowError

BLOCK = 1 << 20
MOST_MEMBERS = 1_000_000
"""Files, folders and links of one tree; each takes about 300 bytes of memory."""
LONGEST_HEADER = 1 << 20
"""Bytes of a member's extended header: names and attributes of real files have kilobytes."""
_EXTENDED = {
    tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, tarfile.XHDTYPE, tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
}  # fmt: skip


class TooLarge(FallowError):  # noqa: N818  (a refusal, not a defect)
    """Report a tree with more bytes than may be kept."""


class FileTree(msgspec.Struct, frozen=True):
    """The content of a tar stream: hash, regular files, and bytes of the stream.

    `stream_hash` has hard links as the stream has them: snapshots of before 0.1.0 keep that hash.
    """

    hash: str
    files: int
    bytes: int
    stream_hash: str

    def has_hash(self, stored: str | None) -> bool:
        """Return whether this is the tree whose hash was stored."""
        return stored in {self.hash, self.stream_hash}


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
        TooLarge: the stream has more than `max_bytes` bytes or `MOST_MEMBERS` members.
        FallowError: it is no tar, or it ends early.
    """
    stream = _Stream(pieces, sink, max_bytes)
    members: list[_Member] = []
    try:
        buffered: Any = io.BufferedReader(cast("io.RawIOBase", stream), BLOCK)
        with tarfile.open(fileobj=buffered, mode="r|", tarinfo=_Header) as archive:
            while (member := archive.next()) is not None:
                archive.members.clear()  # type: ignore[attr-defined]  # it would keep every header
                content = archive.extractfile(member) if member.isreg() else None
                members.append(_read_member(member, content))
                if len(members) > MOST_MEMBERS:
                    raise TooLarge(f"more than {MOST_MEMBERS:,} files")
        while buffered.read(BLOCK):  # padding of the last record
            pass
    except (tarfile.TarError, ValueError, OverflowError, RecursionError) as error:
        raise FallowError(f"the archive is not whole: {error}") from error
    return FileTree(
        hash=_hash_members(_name_first_links(members)),
        files=sum(member.content_hash != b"" for member in members),
        bytes=stream.bytes_read,
        stream_hash=_hash_members(members),
    )


class _Header(tarfile.TarInfo):
    """A member whose extended headers have a size that memory can hold."""

    def _proc_member(self, archive: tarfile.TarFile) -> Any:
        if self.type in _EXTENDED and self.size > LONGEST_HEADER:
            raise tarfile.ReadError(f"a header of {self.size:,} bytes")
        return super()._proc_member(archive)  # type: ignore[misc]  # its hook for subclasses


class _Member(NamedTuple):
    """One member of a stream; `content_hash` is empty for what is no regular file."""

    kind: bytes
    mode: int
    name: str
    target: str
    content_hash: bytes


def _read_member(member: tarfile.TarInfo, content: Any) -> _Member:
    content_hash = b""
    if content is not None:
        digest = hashlib.sha256()
        while block := content.read(BLOCK):
            digest.update(block)
        content_hash = digest.digest()
    kind = b"-" if member.isreg() else member.type
    name = member.name.strip("/").removeprefix("./")
    return _Member(kind, member.mode & 0o7777, name, member.linkname, content_hash)


def _name_first_links(members: list[_Member]) -> list[_Member]:
    """Return members in which the first name of each group of hard links has the content."""
    groups: dict[str, list[str]] = {}
    for member in members:
        if member.kind == tarfile.LNKTYPE:
            target = member.target.strip("/").removeprefix("./")
            groups.setdefault(target, [target]).append(member.name)
    hashes = {member.name: member.content_hash for member in members if member.name in groups}
    first_names = {name: min(names) for names in groups.values() for name in names}
    first_hashes = {min(names): hashes.get(target, b"") for target, names in groups.items()}
    named = []
    for member in members:
        first = first_names.get(member.name)
        if first == member.name:
            content_hash = first_hashes[first]
            named.append(member._replace(kind=b"-", target="", content_hash=content_hash))
        elif first is not None:
            link = member._replace(kind=tarfile.LNKTYPE, target=first, content_hash=b"")
            named.append(link)
        else:
            named.append(member)
    return named


def _hash_members(members: list[_Member]) -> str:
    lines = (
        f"{m.kind!r}\x1f{m.mode:o}\x1f{m.name}\x1f{m.target}\x1f{m.content_hash.hex()}"
        for m in members
    )
    digest = hashlib.sha256()
    for line in sorted(
        hashlib.sha256(line.encode("utf-8", "surrogateescape")).digest() for line in lines
    ):
        digest.update(line)
    return digest.hexdigest()
