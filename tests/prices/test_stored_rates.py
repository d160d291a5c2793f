"""Which rates are replaced, which are added, and when the ledger has to be written again."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, cast

import duckdb
import pytest

from fallow.settings import Settings
from fallow.tables import Batch
from tests import engine
from tests.rates import every_gpu
from warehouse.catalog import locate_in_memory
from warehouse.lake import Warehouse
from warehouse.pricing import store_rates

T = datetime(2026, 11, 1)  # noqa: DTZ001  (tables hold naive UTC)


class Tables:
    """What `store_rates` uses of a warehouse, over an engine in memory."""

    settings = Settings(cluster="a")
    place = locate_in_memory(settings)

    def __init__(self) -> None:
        self.connection = engine.empty()
        self.connection.execute("CREATE TABLE IF NOT EXISTS unposted (bucket TIMESTAMP)")
        self.connection.execute("INSERT INTO ledger (bucket) VALUES (?), (?)", [T, T])

    def clock(self) -> datetime:
        return T.replace(tzinfo=UTC)

    def query(self, sql: str, parameters: dict[str, Any]) -> Any:
        return self.connection.execute(sql, parameters).to_arrow_table()

    def replace(self, table: str, rows: Any, where: str, parameters: dict[str, Any]) -> None:
        self.connection.execute(f"DELETE FROM {table} WHERE {where}", parameters)
        self.put(table, rows)

    def ingest(self, batches: list[Batch]) -> None:
        for batch in batches:
            self.put(batch.table, batch.rows)

    def put(self, table: str, rows: Any) -> None:
        self.connection.register("incoming", rows)
        self.connection.execute(f"INSERT INTO {table} BY NAME SELECT * FROM incoming")
        self.connection.unregister("incoming")

    @contextmanager
    def transaction(self) -> Iterator[duckdb.DuckDBPyConnection]:
        yield self.connection

    def store(self, *rows: tuple[str, int]) -> int:
        """Store rates by their source and price."""
        records = [
            {**row, "source": source, "as_of": T}
            for source, usd in rows
            for row in every_gpu(str(usd)).rows.to_pylist()
        ]
        data: dict[str, object] = {
            name: [record[name] for record in records] for name in records[0]
        }
        return store_rates(cast("Warehouse", self), Batch.of("rate", data))

    @property
    def rates(self) -> list[tuple[str, int]]:
        found = self.connection.execute("SELECT source, node_usd_h FROM rate ORDER BY ALL")
        return [(source, int(usd)) for source, usd in found.fetchall()]

    @property
    def marked(self) -> list[datetime]:
        return [row[0] for row in self.connection.execute("SELECT * FROM unposted").fetchall()]


def test_sources_of_the_present_state_replace_all_their_rows() -> None:
    tables = Tables()
    assert tables.store(("rate-card", 1), ("settings", 2), ("on-prem", 3)) == 3
    assert tables.rates == [("on-prem", 3), ("rate-card", 1), ("settings", 2)]
    assert tables.store(("derived", 4)) == 1
    assert tables.rates == [("derived", 4)], "a setting that was removed is gone"
    tables.store(("on-prem", 5))
    assert tables.rates == [("derived", 4), ("on-prem", 5)], "a server of the site is apart"


def test_histories_are_added_to() -> None:
    tables = Tables()
    tables.store(("aws", 1))
    tables.store(("aws", 2), ("commitment", 3))
    assert tables.rates == [("aws", 1), ("aws", 2), ("commitment", 3)]
    tables.store(("settings", 4), ("aws", 5))
    assert tables.rates == [("aws", 1), ("aws", 2), ("aws", 5), ("commitment", 3), ("settings", 4)]


@pytest.mark.parametrize(("usd", "marked"), [(1, []), (2, [T])])
def test_hours_are_written_again_only_where_a_price_changed(
    usd: int, marked: list[datetime]
) -> None:
    tables = Tables()
    tables.store(("settings", 1))
    tables.connection.execute("DELETE FROM unposted")
    tables.store(("settings", usd))
    assert tables.marked == marked
