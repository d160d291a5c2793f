"""Thousands of hostile objects through every collector and import, between honest ones.

Every field of every source meets a share of `values`. What was honest is stored as it is without
them, to the byte; what is hostile is refused in words or stored clean.
"""

import copy
import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from fallow.clean_texts import check_batches, clean_rows
from fallow.errors import FallowError
from fallow.settings import Settings
from fallow.tables import Batch
from runtime.operations.accounting import pipeline
from tests.hostile.sources import NOW, SOURCES, WINDOW, Item, Source
from tests.hostile.values import VALUES
from warehouse.lake import Warehouse

Rows = dict[str, list[str]]
NAMES = ("name", "pod", "node", "device", "workload", "region", "instance_type")
OF_ALL = {"scrape", "rejection", "cursor", "dirty", "watermark", "schema_version"}
"""Tables whose rows are of the whole source."""
AT_ONCE = 6
CASES = [
    pytest.param(source, place, id=f"{name}-{place}")
    for name, source in SOURCES.items()
    for place in range(0, len(source.build("evil")), AT_ONCE)
]


def list_places(value: Any, *path: Any) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every field."""
    if not isinstance(value, dict | list):
        return
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
        yield (*path, key)
        yield from list_places(inner, *path, key)


def put(item: Item, path: tuple[Any, ...], value: Any) -> Item:
    """Return the object with another value at a path."""
    changed = copy.deepcopy(item)
    place: Any = changed
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return changed


def build_hostile(source: Source, item: Item) -> Iterator[list[Item]]:
    """Yield, of each field but kind and address, the object with a share of the values."""
    places = (path for path in list_places(item) if path[0] not in {"apiVersion", "kind", "server"})
    for number, path in enumerate(places):
        values = [value for value in VALUES if source.can_hold(path, value)]
        yield [put(item, path, value) for value in values[number % source.share :: source.share]]


def read(source: Source, folder: Path, items: Sequence[Item]) -> list[tuple[str, list[Item]]]:
    """Return rows by table of what a source reads, after the check of texts at its edge.

    What is clean stays as it is when it is checked again.
    """
    batches = list(check_batches(source.read(folder, items), cluster="c", source="test", at=NOW))
    assert not [b.table for b in batches if clean_rows(b.table, b.rows)[1]]
    return [(batch.table, batch.rows.to_pylist()) for batch in batches]


def select_honest(tables: Iterable[tuple[str, list[Item]]]) -> Rows:
    """Return the rows of objects whose name is honest, as text.

    A waiting Workload's row lists the flavors of its whole cluster, and a device has its place
    among all devices of its node.
    """
    texts: Rows = {}
    for table, rows in tables:
        for row in rows if table not in OF_ALL else ():
            if any("honest" in str(row.get(key)) for key in NAMES):
                if row.get("request"):
                    row["request"] = {**json.loads(row["request"]), "flavors": None}
                texts.setdefault(table, []).append(repr({**row, "gpu_index": None}))
    return {table: sorted(rows) for table, rows in texts.items()}


def find_fault(source: Source, folder: Path, items: list[Item], expected: Rows) -> Any:
    """Return what hostile objects cost; None = nothing."""
    first, last = source.build("honest-1"), source.build("honest-2")
    try:
        tables = read(source, folder, [*first, *items, *last])
    except FallowError as error:
        if source.refuses and len(items) > 1:  # refused whole: which of them it is for
            faults = (find_fault(source, folder, [item], expected) for item in items)
            return next(filter(None, faults), None)
        return None if source.refuses else error
    except Exception as error:  # noqa: BLE001  (it is the fault)
        return error
    if (found := select_honest(tables)) != expected:
        both = (list(itertools.chain(*rows.values())) for rows in (found, expected))
        pairs = itertools.zip_longest(*both)
        return next(pair for pair in pairs if pair[0] != pair[1])
    return None


def find_least(source: Source, folder: Path, items: list[Item], expected: Rows) -> list[Item]:
    """Return few objects that do what all do."""
    while len(items) > 1:
        half = len(items) // 2
        parts = (items[:half], items[half:])
        items = next((p for p in parts if find_fault(source, folder, p, expected)), [])
    return items


@pytest.mark.parametrize(("source", "place"), CASES)
def test_honest_rows_stay_equal_beside_hostile_objects(
    source: Source, place: int, tmp_path: Path
) -> None:
    evil = source.build("evil")[place : place + AT_ONCE]
    hostile = [items for item in evil for items in build_hostile(source, item)]
    honest = [*source.build("honest-1"), *source.build("honest-2")]
    expected = select_honest(read(source, tmp_path, honest))
    assert expected
    for items in hostile if source.refuses else [list(itertools.chain(*hostile))]:
        if fault := find_fault(source, tmp_path, items, expected):
            least = find_least(source, tmp_path, items, expected)
            raise AssertionError(
                f"{str(fault)[:300]!r} {str(least)[:600] if len(least) == 1 else len(least)}"
            )


def read_all(folder: Path, *, is_hostile: bool) -> Iterator[Batch]:
    """Yield what all sources read of honest objects and of some hostile ones in each field."""
    for source in SOURCES.values():
        evil = [] if source.refuses else source.build("evil")
        fields = itertools.chain(*(build_hostile(source, item) for item in evil))
        hostile = list(itertools.islice(itertools.chain(*fields), 0, None, 23))
        hostile = hostile if is_hostile else []
        yield from source.read(
            folder, [*source.build("honest-1"), *hostile, *source.build("honest-2")]
        )


def test_what_is_read_of_hostile_objects_is_stored_and_accounted(
    settings: Settings, tmp_path: Path
) -> None:
    stored = []
    for is_hostile in (False, True):
        with Warehouse.open_in_memory(settings, clock=lambda: NOW) as warehouse:
            batches = list(read_all(tmp_path, is_hostile=is_hostile))
            pipeline.price(warehouse, [batch for batch in batches if batch.table == "rate"])
            pipeline.ingest(warehouse, [batch for batch in batches if batch.table != "rate"])
            pipeline.account(warehouse, WINDOW)
            tables = {batch.table for batch in batches} - {"sample"} | {"rollup_5m"}
            rows = (
                (t, warehouse.query(f'SELECT * FROM "{t}"').to_pylist()) for t in sorted(tables)
            )
            stored.append(select_honest(rows))
    assert stored[0] == stored[1] != {}
