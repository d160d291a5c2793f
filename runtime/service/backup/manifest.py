"""The manifest of a backup: its files with their checksums. It is written last.

A folder or prefix without one is no backup: the process that wrote it was interrupted. Whoever may
write the backup may change it with its checksums; only its SHA-256, kept elsewhere, proves it.
"""

import hashlib
import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import msgspec

from fallow.errors import UsageError, WarehouseError
from warehouse.cold_storage import ColdStore

MANIFEST = "manifest.json"
SCHEMA = "fallow.backup/v1"
MOST_BYTES = 1 << 28
"""Of a manifest: that of a million files has 150 MB."""
_PART = r"(?!\.\.?(?:/|$))[^/\\\x00-\x1f\x7f]{1,255}"
_NAME = re.compile(rf"{_PART}(?:/{_PART})*")
_SHA256 = re.compile(r"[0-9a-f]{64}")


class StoredFile(msgspec.Struct, frozen=True):
    """One file of a backup, by its name below the backup's root."""

    name: str
    bytes: int
    sha256: str


class UncoveredPart(msgspec.Struct, frozen=True):
    """What a backup does not have, and where to back it up."""

    part: str
    remedy: str


class Manifest(msgspec.Struct, frozen=True):
    """What a backup has, of which home and moment."""

    at: datetime
    fallow: str
    cluster: str
    home: str
    anchor: str
    """Row and hash at the journal's end (ROW:HASH); empty: the home has no journal."""
    files: list[StoredFile]
    uncovered: list[UncoveredPart] = []
    schema: str = SCHEMA


def encode_manifest(manifest: Manifest) -> tuple[bytes, str]:
    """Return a manifest as it is stored, and its SHA-256."""
    text = msgspec.json.format(msgspec.json.encode(manifest))
    return text, hashlib.sha256(text).hexdigest()


def read_manifest(place: ColdStore, sha256: str = "") -> Manifest:
    """Return the manifest of a backup; `sha256` is what `fallow backup` printed, if known.

    Raises:
        UsageError: there is no backup, an unfinished one, one of a newer Fallow, one with another
            checksum, or one with names that no backup has.
        TemporaryError: the object store does not answer.
    """
    try:
        text = b"".join(read_blocks(place, MANIFEST, MOST_BYTES))
    except FileNotFoundError:
        raise UsageError(
            f"there is no finished backup at {place.root}: it has no {MANIFEST}",
            hint="name the folder or prefix that `fallow backup` was given",
        ) from None
    if sha256.lower() not in ("", actual := hashlib.sha256(text).hexdigest()):
        raise UsageError(
            f"{place.root}/{MANIFEST} has the SHA-256 {actual}, not that of --manifest-sha256",
            hint="it was changed, or it is of another backup; nothing was restored",
        )
    try:
        manifest = msgspec.json.decode(text, type=Manifest)
    except msgspec.MsgspecError as error:
        raise UsageError(
            f"{place.root}/{MANIFEST} is no manifest of a backup: {error}",
            hint="it is damaged; take another backup",
        ) from error
    if manifest.schema != SCHEMA:
        raise UsageError(
            f"the backup at {place.root} has the format {manifest.schema}; this Fallow reads "
            f"{SCHEMA}",
            hint=f"restore it with Fallow {manifest.fallow} or newer",
        )
    _check_names(manifest, f"{place.root}/{MANIFEST}")
    return manifest


def read_blocks(place: ColdStore, name: str, most_bytes: int) -> Iterator[bytes]:
    """Yield a file of a backup, of which no more is read than it may have.

    Raises:
        FileNotFoundError: it is not there.
        WarehouseError: it is longer, or no regular file below the backup's folder.
    """
    address = f"{place.root}/{name}"
    if "://" not in address:
        real = Path(address).resolve(strict=True)
        if not (real.is_file() and real.is_relative_to(Path(place.root).resolve())):
            raise explain_damage(address, "it is no regular file of this folder")
    size = 0
    for block in place.blocks(address):
        size += len(block)
        if size > most_bytes:
            raise explain_damage(address, f"it has more than {most_bytes:,} bytes")
        yield block


def explain_damage(
    address: str, why: str = "it has not the checksum that it was written with"
) -> WarehouseError:
    """Return the error of a file that is not what its backup's manifest says."""
    return WarehouseError(f"{address} is damaged: {why}", hint="restore it from another backup")


def _check_names(manifest: Manifest, address: str) -> None:
    """Refuse names that lead out of a folder, or of which one would replace another."""
    names: set[str] = set()
    for file in manifest.files:
        if not _NAME.fullmatch(file.name):
            raise _refuse(address, file.name, "is no path below a folder")
        if not _SHA256.fullmatch(file.sha256) or file.bytes < 0:
            raise _refuse(address, file.name, "has no size and SHA-256")
        if file.name in names:
            raise _refuse(address, file.name, "is there twice")
        names.add(file.name)
    for file in manifest.files:
        if files := names.intersection(map(str, Path(file.name).parents)):
            raise _refuse(address, file.name, f"is below the file {files.pop()!r}")


def _refuse(address: str, name: str, why: str) -> UsageError:
    return UsageError(
        f"{address} names files that no backup has: {name!r} {why}",
        hint="it was changed: nothing was restored; restore another backup",
    )
