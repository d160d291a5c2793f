"""A warehouse of plain DuckDB tables: the ledger's queries need no more than the nouns' names."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from fallow.settings import Settings
from fallow.tables import Batch
from fallow.window import Window
from tests import engine
from warehouse.snapshot_reader import SnapshotReader

T = datetime(2026, 11, 1)  # noqa: DTZ001  (tables hold naive UTC)
Row = dict[str, Any]


class Tables:
    """What `allocate`, `post`, `keep` and `spend` use of a warehouse."""

    def __init__(self, with_engine: duckdb.DuckDBPyConnection | None = None) -> None:
        self.settings = Settings()
        self._connection = with_engine or engine.empty()

    def put(self, table: str, rows: Iterable[Row]) -> None:
        listed = list(rows)
        names = {name for row in listed for name in row}
        data: dict[str, object] = {n: [row.get(n) for row in listed] for n in names}
        self._put(f"INSERT INTO {table}", Batch.of(table, data).rows)

    def query(self, sql: str, parameters: Mapping[str, Any] | None = None) -> pa.Table:
        return self._connection.execute(sql, dict(parameters or {})).to_arrow_table()

    def clear(self, table: str) -> None:
        self._connection.execute(f"DELETE FROM {table}")

    query_whole = query

    @property
    def whole(self) -> "Tables":
        return self

    def read_at_once(
        self, read: Callable[[SnapshotReader], Any], table_names: frozenset[str]
    ) -> Any:
        del table_names  # nothing else changes these tables
        return read(SnapshotReader(self._connection))

    def replace(
        self, table: str, rows: pa.Table, where: str, parameters: Row, *, is_sorted: bool = False
    ) -> int:
        del is_sorted  # a fact about rows that only the lake uses
        self._connection.execute(f"DELETE FROM {table} WHERE {where}", parameters)
        self._put(f"INSERT INTO {table} BY NAME", rows)
        return int(rows.num_rows)

    def derive(self, table: str, sql: str, where: str, parameters: Row) -> int:
        named = {n: v for n, v in parameters.items() if f"${n}" in where}
        self._connection.execute(f"DELETE FROM {table} WHERE {where}", named)
        put = self._connection.execute(f"INSERT INTO {table} BY NAME {sql}", parameters)
        return int((put.fetchone() or (0,))[0])

    def ingest(self, batches: Iterable[Batch]) -> None:
        for batch in batches:
            self._put(f"INSERT INTO {batch.table} BY NAME", batch.rows)

    def rows(self, table: str, order: str = "ALL") -> list[Row]:
        found: list[Row] = self.query(f"SELECT * FROM {table} ORDER BY {order}").to_pylist()
        return found

    def _put(self, verb: str, rows: pa.Table) -> None:
        self._connection.register("incoming", rows)
        self._connection.execute(f"{verb} SELECT * FROM incoming")
        self._connection.unregister("incoming")


def at(minutes: float) -> datetime:
    """Return the naive moment so many minutes after the tests' midnight."""
    return T + timedelta(minutes=minutes)


def window(start: float, end: float) -> Window:
    """Return the window between two minutes."""
    return Window(at(start).replace(tzinfo=UTC), at(end).replace(tzinfo=UTC))


def device(name: str, end: float = 60, **more: Any) -> Row:
    """Return a device that exists from midnight to a minute."""
    base = {"cluster": "c", "device": name, "node": "n", "weight": 1.0, "gpu_model": "H100"}
    return base | {"interval_s": 30.0, "first_seen": T, "last_seen": at(end)} | more


def looks(name: str, first: int, last: int, pod: str = "", **seconds: float) -> list[Row]:
    """Return 5-minute rollups of minutes [first, last): by default, all of it idle."""
    states = seconds or {"idle_s": 300.0}
    return [
        {
            "cluster": "c",
            "device": name,
            "node": "n",
            "bucket": at(minute),
            "namespace": f"ns-{pod}" if pod else "",
            "pod": pod,
            "covered_s": sum(states.values()),
            **states,
        }
        for minute in range(first, last, 5)
    ]


def hourly(tables: Tables) -> None:
    """Make the hourly rollups of what five-minute rollups there are."""
    tables.put(
        "rollup_1h",
        tables.query(
            "SELECT cluster, time_bucket(INTERVAL 1 HOUR, bucket) AS bucket, device, namespace, "
            "pod, sum(idle_s) AS idle_s, sum(low_s) AS low_s, sum(busy_s) AS busy_s, "
            "sum(conflict_s) AS conflict_s, sum(blind_s) AS blind_s, sum(covered_s) AS covered_s "
            "FROM rollup_5m GROUP BY ALL"
        ).to_pylist(),
    )


def flat_rate(usd: str = "2", **more: Any) -> Row:
    """Return a rate that prices every GPU."""
    names = ("region", "zone", "instance_type", "gpu_model", "cluster")
    return {
        **dict.fromkeys(names, ""),
        "source": "settings",
        "provider": "override",
        "term": "on-demand",
        "valid_from": datetime(1970, 1, 1),  # noqa: DTZ001
        "as_of": T,
        "gpu_count": 1,
        "node_usd_h": Decimal(usd),
        "gpu_usd_h": Decimal(usd),
        **more,
    }


class LedgerBuilders:
    """The builders above, for tests."""

    at = staticmethod(at)
    window = staticmethod(window)
    device = staticmethod(device)
    looks = staticmethod(looks)
    hourly = staticmethod(hourly)
    flat_rate = staticmethod(flat_rate)
    tables: Callable[[], Tables] = Tables


@pytest.fixture(scope="session")
def builders() -> type[LedgerBuilders]:
    """Return the builders."""
    return LedgerBuilders


@pytest.fixture
def tables() -> Iterator[Tables]:
    """Return empty tables."""
    with engine.lent() as one:
        yield Tables(one)
