"""Write a backup: everything of one moment, read back, and the manifest last.

The catalog, the journal and the deliveries are copied as they are at one moment. The data files
that this catalog names never change, and maintenance removes none of them meanwhile. Rows that
wait for their catalog are copied before it: what is delivered meanwhile is in the catalog's copy
too, and ingest stores no row twice.
"""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from datetime import UTC, datetime
from pathlib import Path

from actions.journal import Journal
from fallow import __version__
from fallow.errors import UsageError, WarehouseError
from fallow.settings import Settings
from fallow.system.sqlite_file import copy_together
from runtime.operations.acting.live_actor import get_journal_path
from runtime.operations.ingestion.spool import DAMAGED, FOLDER, list_waiting
from runtime.service.backup.copying import Copy, copy_all
from runtime.service.backup.manifest import (
    MANIFEST,
    Manifest,
    StoredFile,
    UncoveredPart,
    encode_manifest,
)
from runtime.service.delivery.outbox import get_outbox_path
from warehouse.backup import (
    DATA,
    hold_files,
    list_files,
    locate_catalog_file,
    verify_copy,
)
from warehouse.catalog import CATALOG_FILE
from warehouse.catalog_copies import CATALOG_COPY, hold_snapshot
from warehouse.cold_storage import ColdFolder, ColdStore, is_empty, open_place

JOURNAL, DELIVERIES = "journal.sqlite", "deliveries.sqlite"
SNAPSHOTS, BASELINES, POLICIES = "snapshots", "baselines", "policies"


def write_backup(
    settings: Settings, destination: str, clock: Callable[[], datetime], *, warehouse: bool = True
) -> tuple[Manifest, str]:
    """Back up a home to an empty folder or prefix; return the manifest and its SHA-256.

    `warehouse` False leaves the warehouse out.

    Raises:
        UsageError: the destination has files.
        WarehouseError: there is no warehouse, or a file is damaged or gone.
        TemporaryError: PostgreSQL or a store does not answer, a disk is full, or maintenance does
            not end.
    """
    target = open_place(destination, settings.warehouse.s3, "the destination")
    if not is_empty(target):
        raise UsageError(
            f"{target.root} is not empty: a backup has a folder or prefix of its own",
            hint="name a new one, such as one with the date",
        )
    catalog = locate_catalog_file(settings) if warehouse else None
    with (
        hold_files(settings) if warehouse else nullcontext(),
        tempfile.TemporaryDirectory(prefix="fallow-backup-") as folder,
    ):
        staging = Path(folder)
        at = clock()
        waiting = _copy_queue(settings, target, staging)
        if warehouse and catalog is None:
            names = _copy_databases_and_postgres(settings, staging)
        else:
            names = _copy_databases(settings, catalog, staging)
        local = ColdFolder(str(staging))
        copies = [_to(target, name, local, str(staging / name)) for name in names]
        if warehouse:
            copies += _list_warehouse(settings, target, staging)
        copies += _list_rest(settings, target)
        files = [*waiting, *copy_all(copies, staging)]
        anchor = _verify_journal(staging, clock) if JOURNAL in names else ""
        if warehouse:
            _verify_warehouse(settings, target, staging)
        uncovered = [] if warehouse else _list_uncovered()
        manifest = Manifest(
            at.astimezone(UTC),
            __version__,
            settings.cluster,
            str(settings.home),
            anchor,
            files,
            uncovered,
        )
        staged = staging / MANIFEST
        text, sha256 = encode_manifest(manifest)
        staged.write_bytes(text)
        target.put(staged, f"{target.root}/{MANIFEST}")
    return manifest, sha256


def _copy_queue(settings: Settings, target: ColdStore, staging: Path) -> list[StoredFile]:
    """Copy the files of rows that wait; one that is delivered meanwhile is not needed."""
    folder = settings.home / FOLDER
    staged = staging / FOLDER
    staged.mkdir()
    paths = [file.path for file in list_waiting(folder)] + sorted(folder.glob(f"*{DAMAGED}"))
    for path in paths:
        with suppress(FileNotFoundError):
            shutil.copyfile(path, staged / path.name)
    local = ColdFolder(str(staged))
    names = sorted(path.name for path in staged.iterdir())
    copies = [_to(target, f"{FOLDER}/{name}", local, str(staged / name)) for name in names]
    return copy_all(copies, staging)


def _copy_databases_and_postgres(settings: Settings, staging: Path) -> list[str]:
    with hold_snapshot(settings) as (begin, copy):
        names = _copy_databases(settings, None, staging, on_snapshot=begin)
        copy(staging / CATALOG_COPY)
    return [*names, CATALOG_COPY]


def _copy_databases(
    settings: Settings,
    catalog: Path | None,
    staging: Path,
    *,
    on_snapshot: Callable[[], None] = lambda: None,
) -> list[str]:
    sources = {
        CATALOG_FILE: catalog,
        JOURNAL: get_journal_path(settings),
        DELIVERIES: get_outbox_path(settings),
    }
    existing = {name: path for name, path in sources.items() if path and path.is_file()}
    targets = {path: staging / name for name, path in existing.items()}
    copy_together(targets, on_snapshot=on_snapshot)
    return list(existing)


def _list_warehouse(settings: Settings, target: ColdStore, staging: Path) -> Iterator[Copy]:
    for file in list_files(settings, staging):
        root = file.address.removesuffix(file.name.partition("/")[2]).rstrip("/")
        source = open_place(root, settings.warehouse.s3, "the warehouse")
        yield _to(target, file.name, source, file.address, file.sha256)


def _list_rest(settings: Settings, target: ColdStore) -> Iterator[Copy]:
    """Yield snapshots, baselines and policies: files that are written once, or by people."""
    snapshots = settings.snapshots.store or str(settings.home / SNAPSHOTS)
    places = {
        SNAPSHOTS: open_place(snapshots, settings.snapshots.s3, "snapshots.store"),
        BASELINES: ColdFolder(str(settings.home / BASELINES)),
        POLICIES: ColdFolder(str(settings.actions.policies.expanduser().absolute())),
    }
    for name, place in places.items():
        for address in _list_addresses(place):
            yield _to(target, name + address.removeprefix(place.root), place, address)


def _list_addresses(place: ColdStore) -> list[str]:
    if "://" in place.root:
        return [address for address, _ in place.listed()]
    # A name that begins with a dot is a file that is being written.
    return sorted(
        str(path)
        for path in Path(place.root).rglob("*")
        if path.is_file() and not path.name.startswith(".")
    )


def _to(target: ColdStore, name: str, source: ColdStore, address: str, sha256: str = "") -> Copy:
    return Copy(name, source, address, target, f"{target.root}/{name}", sha256)


def _verify_journal(staging: Path, clock: Callable[[], datetime]) -> str:
    with Journal.open(staging / JOURNAL, clock, write=False) as journal:
        broken = journal.verify()
        if broken is not None:
            raise WarehouseError(
                f"the journal is broken at row {broken.seq}: {broken.why}",
                hint="nothing was backed up; `fallow actions --verify` shows the same",
            )
        return journal.anchor()


def _verify_warehouse(settings: Settings, target: ColdStore, staging: Path) -> None:
    """Read the copy of the lake back, as `fallow warehouse verify` does."""
    checks = verify_copy(settings, staging, f"{target.root}/{DATA}")
    damaged = [check for check in checks if not check.ok]
    if damaged:
        raise WarehouseError(
            f"the copy of the warehouse is damaged in {len(damaged)} places, such as "
            f"{damaged[0].subject}: {damaged[0].detail}",
            hint="no backup was written; `fallow warehouse verify` reads the original back",
        )


def _list_uncovered() -> list[UncoveredPart]:
    return [
        UncoveredPart("catalog", "the database or file that warehouse.catalog names"),
        UncoveredPart("data", "a copy or versioned bucket of warehouse.data, after the catalog"),
        UncoveredPart("archive", "a copy or versioned bucket of warehouse.cold"),
    ]
