"""A warehouse in memory has the rows that the lake has after the same steps."""

from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest

from actions.facts import read_fleet
from benchmarks.accuracy_collection import run_world
from fallow import tables
from fallow.settings import Settings
from fallow.tables import Batch
from fallow.window import Window
from runtime.experiments.simulation.options import read
from runtime.experiments.world_inventory import isolate_settings
from runtime.operations.accounting import pipeline
from runtime.operations.accounting.prices import read_configured_rates
from runtime.operations.acting.plans import gather_cases
from simulator.world import World
from warehouse.lake import Warehouse
from warehouse.maintenance import CompactionResult, compact_warehouse

HOURS = 8


def live(warehouse: Warehouse, settings: Settings) -> Window:
    """Store, price, account and analyze a small world, with one late sample per device."""
    options = read(days=1, gpus=16, seed=5, mix=["day-notebook=0.4", "forgotten=0.2"])
    start = datetime.fromtimestamp(options.spec.start_s, UTC)
    window = Window(start, start + timedelta(hours=HOURS))
    pipeline.price(warehouse, read_configured_rates(settings, window.end))
    run_world(warehouse, World(options.spec, options.seed), window, options.quirks)
    late = warehouse.query("SELECT * FROM sample ORDER BY ts, device LIMIT 5").to_pylist()
    moved = [{**row, "ts": row["ts"] + timedelta(seconds=7), "util": 55} for row in late]
    rows = pa.Table.from_pylist([*late, *moved], schema=tables.get_schema("sample"))
    stored = warehouse.ingest([Batch("sample", rows)])
    assert (stored.added, stored.duplicates) == (5, 5)
    pipeline.account(warehouse, window)
    return window


def read_columns(warehouse: Warehouse, table: str) -> dict[str, list[object]]:
    """Return a table's columns, its rows in the order of what is exact."""
    names = (c.name for c in tables.list_columns(table) if c.type not in {"f32", "f64"})
    order = ", ".join(f'"{name}"' for name in names)
    columns: dict[str, list[object]] = warehouse.query(
        f'SELECT * FROM "{table}" ORDER BY {order}'
    ).to_pydict()
    return columns


def assert_equal(mine: dict[str, list[object]], others: dict[str, list[object]]) -> None:
    """Floats are equal within 1e-9: the rows of a group are summed in another order."""
    assert mine.keys() == others.keys()
    for name, values in mine.items():
        if any(isinstance(value, float) for value in values):
            one, other = (
                pa.array(each, pa.float64()).to_numpy(zero_copy_only=False)
                for each in (values, others[name])
            )
            np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9, err_msg=name)
        else:
            assert values == others[name], name


@pytest.fixture(scope="module")
def homes(tmp_path_factory: pytest.TempPathFactory) -> tuple[Settings, Settings]:
    first, second = (isolate_settings(tmp_path_factory.mktemp(n), threads=1) for n in "ab")
    return first, second


def test_every_table_has_the_rows_of_the_lake(homes: tuple[Settings, Settings]) -> None:
    now = datetime(2030, 1, 1, tzinfo=UTC)
    with (
        Warehouse.open(homes[0], write=True, clock=lambda: now) as lake,
        Warehouse.open_in_memory(homes[1], clock=lambda: now) as memory,
    ):
        windows = {live(warehouse, warehouse.settings) for warehouse in (lake, memory)}
        (window,) = windows
        filled = 0
        for table in tables.list_table_names():
            columns = read_columns(memory, table)
            filled += any(columns.values())
            assert_equal(columns, read_columns(lake, table))
        assert filled > 15
        cases = [
            gather_cases(wh, wh.settings, at=window.end, cluster=None) for wh in (lake, memory)
        ]
        assert cases[0] == cases[1]
        assert cases[0][0]
        assert read_fleet(lake, window.end) == read_fleet(memory, window.end)
        assert compact_warehouse(memory) == CompactionResult()
    assert not [path for path in homes[1].home.rglob("*") if path.is_file()]
