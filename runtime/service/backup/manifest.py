"""The manifest of a backup: its files with their checksums. It is written last.

A folder or prefix without one is no backup: the process that wrote it was interrupted.
"""

from datetime import datetime

import msgspec

from fallow.errors import UsageError
from warehouse.cold_storage import ColdStore

MANIFEST = "manifest.json"
SCHEMA = "fallow.backup/v1"


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


def read_manifest(place: ColdStore) -> Manifest:
    """Return the manifest of a backup.

    Raises:
        UsageError: there is no backup, an unfinished one, or one of a newer Fallow.
        TemporaryError: the object store does not answer.
    """
    try:
        text = b"".join(place.blocks(f"{place.root}/{MANIFEST}"))
    except FileNotFoundError:
        raise UsageError(
            f"there is no finished backup at {place.root}: it has no {MANIFEST}",
            hint="name the folder or prefix that `fallow backup` was given",
        ) from None
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
    return manifest
