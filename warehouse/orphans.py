"""Find files that nothing names, list them in `orphan_file`, and remove them after seven days.

A file of the lake is named by the catalog from its commit until maintenance has removed it; an
archived file by its registration. What neither has ever named was left by a process that was
killed, or is of another catalog, so it is removed late, and never many at once without a person.
The file of an archived day that was replaced was named: it goes when no snapshot reads it.
"""

import logging
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import msgspec

from fallow.errors import TemporaryError, WarehouseError
from fallow.tables import Batch
from warehouse import tiers
from warehouse.data_files import SECOND_NAMES, is_data_file
from warehouse.place_marks import MARK, PlaceKind
from warehouse.steps import load_step

if TYPE_CHECKING:
    from warehouse.lake import Warehouse

log = logging.getLogger("fallow.warehouse")

MIN_AGE = timedelta(days=2)
"""Age at which a file is an orphan: no transaction and no reader's snapshot lasts so long."""
LISTED_FOR = timedelta(days=7)
"""How long an orphan is listed before it is removed: a person notices a wrong catalog in a week."""
MOST_REMOVED, MOST_SHARE = 20, 0.01
"""Orphans that one turn removes without a person: kills leave few (48 in 45 s of torture)."""


class Orphan(msgspec.Struct, frozen=True):
    """A file that nothing names. `is_old`: it was listed for seven days."""

    place: PlaceKind
    path: str
    is_old: bool


class OrphanCounts(msgspec.Struct, frozen=True):
    """Orphans that are listed, those among them that wait for a person, and one of them."""

    listed: int
    for_person: int
    example: str = ""


def sweep_orphans(warehouse: "Warehouse", *, is_approved: bool = False) -> int:
    """List new orphans and remove old ones; return how many files were removed.

    `is_approved`: a person wants the old ones removed, however many they are.

    Raises:
        WarehouseError: files among the lake's are not the lake's.
    """
    removed, places = [], dict.fromkeys(_find_lake_orphans(warehouse), "data")
    kinds = ["data"]
    try:
        tiers.open_reachable(warehouse)
        if warehouse.marks.stamp("cold"):
            replaced, unnamed = _find_archive_orphans(warehouse)
            places |= dict.fromkeys(unnamed, "cold")
            removed += replaced
            kinds.append("cold")
    except TemporaryError as error:  # the lake is swept all the same
        log.warning("the cold tier is not swept", extra={"why": error.message})
    _list_orphans(warehouse, places, kinds)
    old = [orphan for orphan in read_orphans(warehouse) if orphan.is_old and orphan.path in places]
    if is_approved or not _needs_person(warehouse, old):
        removed += [orphan.path for orphan in old]
    elif old:
        log.warning("files that nothing names wait for a person", extra={"files": len(old)})
    archived = f"{warehouse.marks.stores['cold'].root}/"
    for path in removed:
        kind: PlaceKind = "cold" if path.startswith(archived) else "data"
        warehouse.marks.stores[kind].delete(path)
    if removed:
        with warehouse.transaction() as cursor:
            deleted = {"paths": removed}
            cursor.execute("DELETE FROM orphan_file WHERE list_contains($paths, path)", deleted)
    return len(removed)


def read_orphans(warehouse: "Warehouse") -> list[Orphan]:
    """Return the orphans that are listed."""
    before = warehouse.clock().astimezone(UTC).replace(tzinfo=None) - LISTED_FOR
    with warehouse.snapshot() as cursor:
        rows = cursor.execute(
            "SELECT place, path, first_seen <= $before FROM orphan_file WHERE NOT was_named"
            " ORDER BY path",
            {"before": before},
        ).fetchall()
    return [Orphan(*row) for row in rows]


def count_orphans(warehouse: "Warehouse") -> OrphanCounts:
    """Return how many orphans are listed, and how many of them wait for a person."""
    listed = read_orphans(warehouse)
    old = [orphan for orphan in listed if orphan.is_old]
    waiting = old if _needs_person(warehouse, old) else []
    examples = [orphan.path for orphan in (waiting or listed)[:1]]
    return OrphanCounts(len(listed), len(waiting), *examples)


def _find_lake_orphans(warehouse: "Warehouse") -> list[str]:
    store = warehouse.marks.stores["data"]
    second_names = f"{store.root}/{SECOND_NAMES}/"
    # The catalog is read later than the folder: it has what was committed meanwhile.
    files = _list_old(warehouse, store.listed())
    named = warehouse.marks.list_named("data")
    orphans = [
        path
        for path in files
        if path.endswith(".parquet") and path not in named and not path.startswith(second_names)
    ]
    if strange := [path for path in orphans if not is_data_file(path.rpartition("/")[2])]:
        raise WarehouseError(
            f"{len(strange)} files under {store.root} are not the lake's, such as {strange[0]}; "
            "orphans are not removed there",
            hint="keep warehouse.data for the lake alone "
            f"(the cold tier is {warehouse.marks.stores['cold'].root})",
        )
    return orphans


def _find_archive_orphans(warehouse: "Warehouse") -> tuple[list[str], list[str]]:
    """Return the files of replaced days that nothing reads, and those that were never named."""
    store = warehouse.marks.stores["cold"]
    files = _list_old(warehouse, store.listed())
    named = warehouse.marks.list_named("cold") | {f"{store.root}/{MARK}"}
    with warehouse.snapshot() as cursor:
        # A query that began before a day was restored still reads its file.
        first, last = cursor.execute(
            "SELECT min(snapshot_id), max(snapshot_id) FROM ducklake_snapshots('lake')"
        ).fetchall()[0]
        deletions = f"ducklake_table_deletions('lake', 'main', 'cold_file', {first:d}, {last:d})"
        named |= {path for (path,) in cursor.execute(f"SELECT path FROM {deletions}").fetchall()}
        rows = cursor.execute("SELECT path FROM orphan_file WHERE was_named").fetchall()
    replaced = {path for (path,) in rows}
    orphans = [path for path in files if path not in named]
    return [p for p in orphans if p in replaced], [p for p in orphans if p not in replaced]


def _list_old(warehouse: "Warehouse", files: Iterator[tuple[str, datetime]]) -> list[str]:
    before = warehouse.clock().astimezone(UTC) - MIN_AGE
    return [path for path, written_at in files if written_at <= before]


def _list_orphans(warehouse: "Warehouse", places: dict[str, str], kinds: list[str]) -> None:
    """Add new orphans to the list, and drop from it what is named or gone."""
    listed = {orphan.path for orphan in read_orphans(warehouse) if orphan.place in kinds}
    new = [path for path in places if path not in listed]
    named = [path for path in listed if path not in places]
    if not new and not named:
        return
    now = warehouse.clock().astimezone(UTC).replace(tzinfo=None)
    columns = {
        "place": [places[path] for path in new],
        "path": new,
        "first_seen": [now] * len(new),
        "was_named": [False] * len(new),
    }
    rows = Batch.of("orphan_file", columns).rows
    warehouse.replace(
        "orphan_file",
        rows,
        "NOT was_named AND list_contains($named::VARCHAR[], path)",
        {"named": named},
    )


def _needs_person(warehouse: "Warehouse", old: list[Orphan]) -> bool:
    with warehouse.snapshot() as cursor:
        named = len(cursor.execute(load_step("maintenance/files_of_lake")).fetchall())
    most = max(MOST_REMOVED, MOST_SHARE * named)
    return len(old) > most or any(orphan.place == "cold" for orphan in old)
