"""Check where rows are stored: free disk, writable folders, object stores that respond."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from collectors.doctor import CheckRow
from fallow.errors import FallowError
from fallow.settings import Settings
from fallow.settings.groups import S3
from fallow.system.private_files import is_open_to_others
from runtime.operations.doctor.fault import build_fault_row
from runtime.operations.ingestion.spool import DAMAGED, FOLDER, list_waiting
from warehouse import catalog, maintenance, tiers
from warehouse.cold_storage import ColdBucket
from warehouse.orphans import count_orphans
from warehouse.restatements import list_due_months

if TYPE_CHECKING:
    from warehouse.lake import Warehouse

LOW_FREE_BYTES = 10 << 30
"""Free bytes needed: a week of raw samples of 10,000 GPUs is 6 GB, and compaction writes copies."""
MIN_FREE_BYTES = 1 << 30
PROBE = ".fallow-doctor"


def check_storage(settings: Settings) -> Iterator[CheckRow]:
    """Return whether each folder and each bucket of the settings is writable."""
    warehouse_settings = settings.warehouse
    yield _check_folder(
        "home", settings.home.expanduser(), "--home or FALLOW_HOME names another folder"
    )
    yield from _check_queue(settings.home.expanduser() / FOLDER)
    wanted = (
        ("warehouse.data", warehouse_settings.data, warehouse_settings.s3, "warehouse.s3"),
        ("warehouse.cold", warehouse_settings.cold, warehouse_settings.s3, "warehouse.s3"),
        ("snapshots.store", settings.snapshots.store, settings.snapshots.s3, "snapshots.s3"),
    )
    for key, where, s3, section in wanted:
        if where.startswith("s3://"):
            yield _check_bucket(key, where.rstrip("/"), s3, section)
        elif where and "://" not in where:
            yield _check_folder(key, Path(where).expanduser(), f"{key} names another folder")


def check_rules(warehouse: "Warehouse") -> Iterator[CheckRow]:
    """Return the months whose hours older rules or prices accounted."""
    months = list_due_months(warehouse)
    if months:
        first = f"{months[0].start:%Y-%m}"
        finding = f"{len(months)} months are accounted by older rules or prices, {first} on"
        yield CheckRow("rules", "warn", finding, "fallow warehouse upgrade --check --restate")


def _check_queue(folder: Path) -> Iterator[CheckRow]:
    """Return the rows that wait for a catalog that is away, and files that cannot be read."""
    files = list_waiting(folder)
    if files:
        finding = (
            f"{sum(file.rows for file in files):,} rows of {len(files):,} files wait in {folder}"
        )
        yield CheckRow("queue", "warn", finding, "start PostgreSQL or S3: `fallow up` stores them")
    damaged = sorted(folder.glob(f"*{DAMAGED}"))
    if damaged:
        finding = f"{len(damaged)} files cannot be read, such as {damaged[0]}"
        yield CheckRow("queue", "bad", finding, "their time is unknown; keep them for a report")


def _check_folder(check: str, wanted: Path, otherwise: str) -> CheckRow:
    """Check a folder, or the place where it will be created."""
    existing = wanted
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    if not existing.is_dir():
        return CheckRow(check, "bad", f"{existing} is a file, so {wanted} cannot be", otherwise)
    if not os.access(existing, os.W_OK | os.X_OK):
        step = f"chown or chmod {existing} for user {os.geteuid()}; {otherwise}"
        return CheckRow(check, "bad", f"{existing} cannot be written", step)
    foreign = existing == wanted and wanted.stat().st_uid != os.geteuid()
    if check == "home" and foreign and is_open_to_others(wanted):
        # A home of one's own is narrowed by every command that opens it.
        step = f"its owner runs: chmod -R go-rwx {wanted}"
        return CheckRow(check, "warn", f"{wanted} is open to other users", step)
    free = get_free_bytes(existing)
    suffix = "" if existing == wanted else ", made at the first write"
    finding = f"{wanted}{suffix}: {_format_bytes(free)} free"
    if free >= LOW_FREE_BYTES:
        return CheckRow(check, "ok", finding)
    step = "make room, a larger volume, or fewer warehouse.raw_days; warehouse.cold can be on S3"
    return CheckRow(check, "bad" if free < MIN_FREE_BYTES else "warn", finding, step)


def get_free_bytes(folder: Path) -> int:
    """Return the free bytes of a folder's disk."""
    return shutil.disk_usage(folder).free


def _check_bucket(check: str, root: str, s3: S3, section: str) -> CheckRow:
    """Write, read and remove a small object: a listing alone does not prove write permission."""
    store = ColdBucket(root, s3)
    path = f"{root}/{PROBE}"
    try:
        with tempfile.TemporaryDirectory(prefix="fallow-doctor-") as folder:
            staged = Path(folder, PROBE)
            staged.write_bytes(b"fallow doctor\n")
            store.put(staged, path)
        b"".join(store.blocks(path))
        store.delete(path)
    except FallowError as error:
        where = s3.endpoint or "AWS"
        fix = f"does {where} answer from here? {section}.endpoint, region and credentials"
        row = build_fault_row(check, error, fix)
        hint = f"{fix}; {row.next_step}" if row.status == "away" else row.next_step
        return CheckRow(check, row.status, row.finding, hint.replace("warehouse.s3", section))
    return CheckRow(check, "ok", f"{root} can be written, read and deleted from")


def check_warehouse(warehouse: "Warehouse") -> CheckRow:
    """Return which warehouse it is, and whether its files are bounded."""
    files = maintenance.count_files(warehouse)
    finding = (
        f"{warehouse.place.name} opens; {files.live:,} live files of at most "
        f"{maintenance.MOST_LIVE_FILES:,}, {files.replaced:,} replaced ones of at most "
        f"{maintenance.MOST_REPLACED_FILES:,} wait a day for removal"
    )
    if (
        files.live <= maintenance.MOST_LIVE_FILES
        and files.replaced <= maintenance.MOST_REPLACED_FILES
    ):
        return CheckRow("warehouse", "ok", finding)
    return CheckRow("warehouse", "warn", finding, "fallow warehouse compact; `fallow up` does so")


def check_places(warehouse: "Warehouse") -> Iterator[CheckRow]:
    """Return a catalog that is older than its files, and the files that no snapshot has."""
    if warehouse.marks.is_behind():
        finding = f"the catalog of {warehouse.place.name} is older than its files, or a copy"
        step = "restore the newest one; if there is none: fallow warehouse adopt data"
        yield CheckRow("catalog", "bad", f"{finding}: no file is removed", step)
    counts = count_orphans(warehouse)
    if counts.listed:
        finding = (
            f"{counts.listed} files that no snapshot has, such as {counts.example}; "
            f"{counts.for_person} of them wait for a person"
        )
        step = (
            'fallow warehouse query "FROM orphan_file" lists them; if the catalog is the right '
            "one: fallow warehouse compact --remove-orphans"
        )
        yield CheckRow("orphans", "warn" if counts.for_person else "ok", finding, step)


def check_archive(warehouse: "Warehouse") -> Iterator[CheckRow]:
    """Return each folder of archived days that is missing or empty, as one that is not mounted."""
    days = tiers.count_archived_days(warehouse)
    folders = [place for place in days if "://" not in place]
    for folder in sorted(warehouse.list_away(folders)):
        finding = f"{days[folder]} archived days are in {folder}, which is missing or empty"
        step = "mount it; if it has moved: set warehouse.cold and run fallow warehouse relocate"
        yield CheckRow("archive", "away", finding, step)


def has_catalog(settings: Settings) -> bool:
    """Return whether there is a catalog at all: a missing catalog is no fault."""
    where = catalog.locate_catalog(settings)
    return not where.embedded or (where.home / catalog.CATALOG_FILE).exists()


def _format_bytes(count: int) -> str:
    return f"{count / 2**30:,.1f} GiB" if count >= 1 << 30 else f"{count / 2**20:,.0f} MiB"
