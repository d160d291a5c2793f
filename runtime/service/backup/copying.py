"""Copy files between folders and buckets, with checksums; every copy is read back."""

import hashlib
import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from fallow.errors import TemporaryError, WarehouseError
from runtime.service.backup.manifest import StoredFile, explain_damage, read_blocks
from warehouse.cold_storage import ColdFolder, ColdStore

AT_ONCE = 8
"""Files that are copied at the same time: a bucket answers each after some milliseconds."""


class Copy(msgspec.Struct, frozen=True):
    """One file to copy: its name in the backup, its two addresses, and its checksum if known."""

    name: str
    source: ColdStore
    source_address: str
    target: ColdStore
    target_address: str
    sha256: str = ""


def copy_all(copies: Iterable[Copy], staging: Path) -> list[StoredFile]:
    """Copy files and read each back; return them in order.

    Raises:
        WarehouseError: a file is gone, or is not what its checksum says.
        TemporaryError: a copy does not read back as written, or a store does not answer.
    """
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(lambda copy: _copy(copy, staging), copies))


def check_all(place: ColdStore, files: Iterable[StoredFile]) -> None:
    """Read the files of a backup and compare them with its manifest; write nothing.

    Raises:
        WarehouseError: a file is gone, or is not what the manifest says.
        TemporaryError: a store does not answer.
    """
    with ThreadPoolExecutor(AT_ONCE) as pool:
        # `list`: an error of any of them is raised here.
        list(pool.map(lambda file: _check(place, file), files))


def compute_checksum(blocks: Iterator[bytes]) -> tuple[int, str]:
    """Return the number of bytes and the SHA-256 of blocks."""
    size, digest = 0, hashlib.sha256()
    for block in blocks:
        size += len(block)
        digest.update(block)
    return size, digest.hexdigest()


def _check(place: ColdStore, file: StoredFile) -> None:
    address = f"{place.root}/{file.name}"
    try:
        if compute_checksum(read_blocks(place, file.name, file.bytes)) != (file.bytes, file.sha256):
            raise explain_damage(address)
    except FileNotFoundError:
        raise explain_damage(address, "it is gone") from None


def _copy(copy: Copy, staging: Path) -> StoredFile:
    with tempfile.TemporaryDirectory(dir=staging) as folder:
        path = Path(copy.source_address)
        try:
            if "://" in copy.source_address:
                path = Path(folder, "file")
                with path.open("wb") as file:
                    file.writelines(copy.source.blocks(copy.source_address))
            size, sha256 = compute_checksum(ColdFolder(folder).blocks(str(path)))
        except FileNotFoundError:
            raise WarehouseError(
                f"{copy.source_address} is gone",
                hint="`fallow warehouse verify` lists what is missing",
            ) from None
        if copy.sha256 not in ("", sha256):
            raise explain_damage(copy.source_address)
        copy.target.put(path, copy.target_address)
    if compute_checksum(copy.target.blocks(copy.target_address)) != (size, sha256):
        raise TemporaryError(
            f"{copy.target_address} does not read back as written", hint="try again"
        )
    return StoredFile(copy.name, size, sha256)
