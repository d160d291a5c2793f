"""Where rows lie: free disk, folders that can be written, object stores that answer."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from collectors.doctor import Row
from fallow.errors import FallowError
from fallow.sections import S3
from fallow.settings import Settings
from runtime.doctor.fault import fault

if TYPE_CHECKING:
    from warehouse.lake import Warehouse

LOW = 10 << 30
"""Bytes free: a week of raw looks at 10,000 GPUs is 6 GB, compaction writes beside the old."""
LEAST = 1 << 30
PROBE = ".fallow-doctor"


def places(settings: Settings) -> Iterator[Row]:
    """Say of each folder and each bucket the settings name whether it can be written."""
    kept = settings.warehouse
    yield _folder("home", settings.home.expanduser(), "--home or FALLOW_HOME names another folder")
    wanted = (
        ("warehouse.data", kept.data, kept.s3, "warehouse.s3"),
        ("warehouse.cold", kept.cold, kept.s3, "warehouse.s3"),
        ("snapshots.store", settings.snapshots.store, settings.snapshots.s3, "snapshots.s3"),
    )
    for key, where, s3, section in wanted:
        if where.startswith("s3://"):
            yield _bucket(key, where.rstrip("/"), s3, section)
        elif where and "://" not in where:
            yield _folder(key, Path(where).expanduser(), f"{key} names another folder")


def _folder(check: str, wanted: Path, otherwise: str) -> Row:
    """Look at a folder, or at where it will be made."""
    there = wanted
    while not there.exists() and there != there.parent:
        there = there.parent
    if not there.is_dir():
        return Row(check, "bad", f"{there} is a file, so {wanted} cannot be", otherwise)
    if not os.access(there, os.W_OK | os.X_OK):
        step = f"chown or chmod {there} for user {os.geteuid()}; {otherwise}"
        return Row(check, "bad", f"{there} cannot be written", step)
    free = free_bytes(there)
    made = "" if there == wanted else ", made at the first write"
    finding = f"{wanted}{made}: {_bytes(free)} free"
    if free >= LOW:
        return Row(check, "ok", finding)
    step = "make room, a larger volume, or fewer warehouse.raw_days; warehouse.cold can be on S3"
    return Row(check, "bad" if free < LEAST else "warn", finding, step)


def free_bytes(folder: Path) -> int:
    """Return what is free on a folder's disk."""
    return shutil.disk_usage(folder).free


def _bucket(check: str, root: str, s3: S3, section: str) -> Row:
    """Write, read and remove a small object: a listing alone does not prove that we may write."""
    from warehouse.cold import ObjectStore  # noqa: PLC0415  (boto3)

    store = ObjectStore(root, s3)
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
        told = fault(check, error, fix)
        hint = f"{fix}; {told.next_step}" if told.status == "away" else told.next_step
        return Row(check, told.status, told.finding, hint.replace("warehouse.s3", section))
    return Row(check, "ok", f"{root} can be written, read and tidied")


def opened(warehouse: "Warehouse") -> Row:
    """Say which warehouse it is."""
    return Row("warehouse", "ok", f"{warehouse.place.name} opens")


def holds(settings: Settings) -> bool:
    """Say whether there is a catalog at all: none yet is no fault of anybody."""
    from warehouse import catalog  # noqa: PLC0415  (the engine loads in 0.3 s)

    where = catalog.place(settings)
    return not where.embedded or (where.home / catalog.CATALOG_FILE).exists()


def _bytes(count: int) -> str:
    return f"{count / 2**30:,.1f} GiB" if count >= 1 << 30 else f"{count / 2**20:,.0f} MiB"
