"""Restore a backup into an empty home: another path, volume or bucket. It starts frozen.

The catalog comes last: before it there is no warehouse. The freeze file comes first, and the
journal ends with the row that says that it may lack what was done since (`outdated`).
"""

import hashlib
import tempfile
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import msgspec

from actions.journal import Journal, event_types
from actions.snapshots.store import open_store as open_snapshots
from fallow.errors import UsageError, WarehouseError
from fallow.settings import Settings
from runtime.operations.acting.live_actor import freeze_file, get_actor_name, get_journal_path
from runtime.operations.ingestion.spool import FOLDER
from runtime.service.backup.copying import Copy, check_all, copy_all
from runtime.service.backup.manifest import Manifest, StoredFile, explain_damage, read_manifest
from runtime.service.backup.writing import (
    BASELINES,
    DELIVERIES,
    JOURNAL,
    POLICIES,
    SNAPSHOTS,
)
from runtime.service.delivery.outbox import Outbox, get_outbox_path
from warehouse.backup import ARCHIVE, DATA
from warehouse.catalog import CATALOG_FILE, locate_catalog
from warehouse.catalog_copies import CATALOG_COPY, is_catalog_empty, restore_catalog
from warehouse.cold_storage import ColdFolder, ColdStore, is_empty, locate_cold, open_place
from warehouse.lake import Warehouse
from warehouse.relocation import relocate_warehouse
from warehouse.verification import verify_warehouse


class RestoreResult(msgspec.Struct, frozen=True):
    """What was restored; `policies` is the folder where the backup's policies are now."""

    manifest: Manifest
    policies: str


def restore_backup(
    settings: Settings,
    source: str,
    clock: Callable[[], datetime],
    *,
    by: str = "",
    manifest_sha256: str = "",
) -> RestoreResult:
    """Restore a backup into the places that the settings name; nothing there is overwritten.

    Every name and every checksum is compared before anything is written.

    Raises:
        UsageError: there is no finished backup, its manifest is another one or names files outside
            these places, or a place has files already.
        WarehouseError: a file of the backup is damaged or missing.
        TemporaryError: a store does not answer, or a disk is full.
    """
    place = open_place(source, settings.warehouse.s3, "the source")
    manifest = read_manifest(place, manifest_sha256)
    home = settings.home.expanduser().absolute()
    targets = _open_targets(settings)
    _require_empty(settings, home, targets)
    _check_catalog(settings, manifest)
    _check_targets(settings, manifest, targets)
    check_all(place, manifest.files)
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    why = f"restored from {place.root}, a backup of {manifest.at:%Y-%m-%d %H:%M} UTC"
    switch = freeze_file(settings)
    switch.parent.mkdir(parents=True, exist_ok=True)
    switch.write_text(f"{why}\n")
    with tempfile.TemporaryDirectory(prefix="fallow-restore-") as folder:
        staging = Path(folder)
        _restore_files(settings, manifest, place, targets, staging)
        _restore_databases(settings, manifest.files, place, staging, clock)
        _outdate_journal(settings, staging, clock, why, by)
        for name, path in _locate_databases(settings).items():
            if (staging / name).is_file():
                ColdFolder(str(path.parent)).put(staging / name, str(path))
        if (staging / CATALOG_COPY).is_file():
            restore_catalog(settings, staging / CATALOG_COPY)
    if any(file.name in (CATALOG_FILE, CATALOG_COPY) for file in manifest.files):
        relocate_warehouse(settings, renew=True)
        with Warehouse.open(settings) as warehouse:
            damaged = [check for check in verify_warehouse(warehouse) if not check.ok]
        if damaged:
            raise WarehouseError(
                f"the restored warehouse is damaged: {damaged[0].subject}: {damaged[0].detail}",
                hint="restore another backup into an empty home",
            )
    policies = home / POLICIES
    return RestoreResult(manifest, str(policies) if policies.exists() else "")


def _open_targets(settings: Settings) -> dict[str, ColdStore]:
    data = locate_catalog(settings).data.rstrip("/")
    home = settings.home.expanduser().absolute()
    return {
        DATA: open_place(data, settings.warehouse.s3, "warehouse.data"),
        ARCHIVE: open_place(locate_cold(settings), settings.warehouse.s3, "warehouse.cold"),
        BASELINES: ColdFolder(str(home / BASELINES)),
        POLICIES: ColdFolder(str(home / POLICIES)),
        FOLDER: ColdFolder(str(home / FOLDER)),
    }


def _locate_databases(settings: Settings) -> dict[str, Path]:
    """Return where each database belongs, in the order in which they are restored."""
    return {
        JOURNAL: get_journal_path(settings),
        DELIVERIES: get_outbox_path(settings),
        CATALOG_FILE: settings.home.expanduser().absolute() / CATALOG_FILE,
    }


def _require_empty(settings: Settings, home: Path, targets: dict[str, ColdStore]) -> None:
    occupied = [str(path) for path in _locate_databases(settings).values() if path.exists()]
    places = [ColdFolder(str(home)), *targets.values()]
    occupied += [place.root for place in places if not is_empty(place)]
    if occupied:
        raise UsageError(
            f"{occupied[0]} has files already: a backup is restored only into empty places",
            hint="give --home an empty folder, or move what is there away",
        )


def _check_catalog(settings: Settings, manifest: Manifest) -> None:
    """Refuse a backup whose catalog cannot be where the settings want it, before any file."""
    names = {file.name for file in manifest.files}
    is_embedded = locate_catalog(settings).embedded
    if CATALOG_COPY in names and is_embedded:
        raise UsageError(
            "the backup's catalog was in PostgreSQL, and warehouse.catalog is empty",
            hint="create an empty database, and name it: warehouse.catalog: postgres:dbname=...",
        )
    if CATALOG_FILE in names and not is_embedded:
        raise UsageError(
            "the backup's catalog is a file, and warehouse.catalog names a database",
            hint="leave warehouse.catalog empty to restore this backup",
        )
    if CATALOG_COPY in names and not is_catalog_empty(settings):
        raise UsageError(
            "the database that warehouse.catalog names has a catalog already: a backup is "
            "restored only into an empty one",
            hint="create a database, and name it in warehouse.catalog",
        )


def _check_targets(settings: Settings, manifest: Manifest, targets: dict[str, ColdStore]) -> None:
    """Refuse a file of no known part, and one that a link in its place leads elsewhere."""
    roots = {part: target.root for part, target in targets.items()}
    roots[SNAPSHOTS] = settings.snapshots.store or str(settings.home / SNAPSHOTS)
    databases = {*_locate_databases(settings), CATALOG_COPY}
    for file in manifest.files:
        part, _, rest = file.name.partition("/")
        root = roots.get(part) if rest else None
        if root is None and file.name not in databases:
            legal = ", ".join(sorted({*databases, *(f"{part}/" for part in roots)}))
            raise UsageError(
                f"the backup has a file of no known part: {file.name!r}",
                hint=f"the parts are {legal}; nothing was restored",
            )
        if root is None or "://" in root:
            continue
        folder = Path(root).expanduser().resolve()
        if not (folder / rest).resolve().is_relative_to(folder):
            raise UsageError(
                f"{root}/{rest} would be outside of {folder}: a link leads there",
                hint="remove the link, or name another place in the settings",
            )


def _restore_files(
    settings: Settings,
    manifest: Manifest,
    place: ColdStore,
    targets: dict[str, ColdStore],
    staging: Path,
) -> None:
    copies = []
    for file in manifest.files:
        folder, _, rest = file.name.partition("/")
        if folder in targets:
            target = targets[folder]
            address = f"{target.root}/{rest}"
            copies.append(_choose_source(place, file, target, address))
        elif folder == SNAPSHOTS:
            _restore_snapshot(settings, place, file, rest)
    copy_all(copies, staging)


def _restore_snapshot(settings: Settings, place: ColdStore, file: StoredFile, key: str) -> None:
    """Write a snapshot by its own store, which knows the bucket's encryption."""
    address, digest = f"{place.root}/{file.name}", hashlib.sha256()
    with open_snapshots(settings.snapshots, settings.home).write(key) as writer:
        for block in place.blocks(address):
            digest.update(block)
            writer.add(block)
        if digest.hexdigest() != file.sha256:
            raise explain_damage(address)
        writer.commit()


def _restore_databases(
    settings: Settings,
    files: list[StoredFile],
    place: ColdStore,
    staging: Path,
    clock: Callable[[], datetime],
) -> None:
    """Stage the databases; a delivery that waited may have been sent since the backup."""
    names = {*_locate_databases(settings), CATALOG_COPY}
    local = ColdFolder(str(staging))
    copy_all(
        [
            _choose_source(place, file, local, str(staging / file.name))
            for file in files
            if file.name in names
        ],
        staging,
    )
    if (staging / DELIVERIES).is_file():
        with Outbox.open(staging / DELIVERIES) as outbox:
            outbox.abandon("restored from a backup: it may have been sent since", clock())


def _outdate_journal(
    settings: Settings, staging: Path, clock: Callable[[], datetime], why: str, by: str
) -> None:
    path = staging / JOURNAL
    with Journal.open(path, clock, actor=by or get_actor_name(settings)) as journal:
        broken = journal.verify()
        if broken is not None:
            raise WarehouseError(
                f"the journal of the backup is broken at row {broken.seq}: {broken.why}",
                hint="restore another backup",
            )
        journal.extend(
            [
                (event_types.OUTDATED, event_types.FLEET, {"why": why}),
                (event_types.FROZEN, event_types.FLEET, {"why": why}),
            ]
        )


def _choose_source(place: ColdStore, file: StoredFile, target: ColdStore, address: str) -> Copy:
    return Copy(file.name, place, f"{place.root}/{file.name}", target, address, file.sha256)
