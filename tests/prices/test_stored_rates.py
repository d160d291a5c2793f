"""Which rates are replaced, which are added, and when the ledger has to be written again."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, cast

import duckdb
import pytest

from fallow.settings import Settings
from fallow.tables import Batch
from runtime.operations.accounting.prices import read_configured_rates
from tests import engine
from tests.rates import every_gpu
from warehouse import pricing
from warehouse.catalog import locate_in_memory
from warehouse.lake import Warehouse
from warehouse.pricing import STANDING, find_conflicts, list_other_homes, store_rates
from warehouse.rate_history import SHIPPED

T = datetime(2026, 11, 1)  # noqa: DTZ001  (tables hold naive UTC)


class Tables:
    """What `store_rates` uses of a warehouse, over an engine in memory."""

    settings = Settings(cluster="a")
    place = locate_in_memory(settings)

    def __init__(self) -> None:
        self.connection = engine.empty()
        self.connection.execute(
            "CREATE TABLE IF NOT EXISTS unposted (bucket TIMESTAMP, cluster VARCHAR)"
        )
        self.connection.execute(
            "CREATE MACRO ducklake_current_snapshot(lake) AS TABLE SELECT 7 AS id"
        )
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
    tables.store(("market", 2), ("commitment", 3))
    assert tables.rates == [("aws", 1), ("commitment", 3), ("market", 2)]
    tables.store(("settings", 4), ("aws", 5))
    assert tables.rates == [("aws", 5), ("commitment", 3), ("market", 2), ("settings", 4)]


@pytest.mark.parametrize(("usd", "marked"), [(1, []), (2, [T])])
def test_hours_are_written_again_only_where_a_price_changed(
    usd: int, marked: list[datetime]
) -> None:
    tables = Tables()
    tables.store(("settings", 1))
    tables.connection.execute("DELETE FROM unposted")
    tables.store(("settings", usd))
    assert tables.marked == marked


def test_hours_follow_a_price_of_a_market_that_is_known_later() -> None:
    tables = Tables()
    tables.store(("aws", 1))
    assert tables.marked == [T]
    tables.connection.execute("DELETE FROM unposted")
    tables.store(("aws", 1))
    assert tables.marked == [], "known already"
    tables.store(("aws", 2))
    assert tables.marked == [T]


class Homes(Tables):
    """Homes over one catalog, each with its settings, that store their prices in turn."""

    settings = Settings()

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self.at, self.home = T, ""
        monkeypatch.setattr(pricing, "identify_home", lambda *_, **__: self.home)

    def clock(self) -> datetime:
        return self.at.replace(tzinfo=UTC)

    def put_prices(self, home: str, **prices: object) -> list[str]:
        """Store a home's prices, and return of which source another home's stay."""
        self.home, self.settings = (
            home,
            Settings.model_validate({"cluster": home, "prices": prices}),
        )
        rates = read_configured_rates(self.settings, self.clock())[0]
        others = list_other_homes(self.connection.execute, home, self.clock())
        conflicts = find_conflicts(
            self.connection.execute, rates.rows, self.settings.prices, self.clock(), others
        )
        store_rates(cast("Warehouse", self), rates)
        assert not any(why and f"({source})" not in why for (source, _), why in conflicts.items())
        return [source for (source, _), why in conflicts.items() if why]

    def read(self) -> list[tuple[Any, ...]]:
        """Return the prices of one type of node."""
        return self.connection.execute(
            "SELECT source, cluster, gpu_model, node_usd_h, nodes FROM rate"
            " WHERE instance_type IN ('', 'p5.48xlarge') AND region IN ('', 'us-east-1')"
            " AND (gpu_model = 'H100' OR gpu_model = '') ORDER BY ALL"
        ).fetchall()

    def list_sources(self) -> set[str]:
        return {source for source, *_ in self.read()} - set(SHIPPED)


@pytest.fixture
def homes(monkeypatch: pytest.MonkeyPatch) -> Homes:
    return Homes(monkeypatch)


def own(cluster: str = "", usd: int = 280_000) -> dict[str, object]:
    """Return a server of the site."""
    return {"capex_usd": usd, "gpus": 8, "gpu_model": "H100", "cluster": cluster}


def reserve(name: str, usd: int = 32, nodes: int = 4) -> dict[str, object]:
    """Return a commitment of a year."""
    term = {"start": "2026-01-01T00:00:00Z", "end": "2027-01-01T00:00:00Z"}
    node = {"provider": "aws", "instance_type": "p5.48xlarge", "gpus_per_node": 8}
    return {"name": name, "nodes": nodes, "usd_per_node_hour": usd} | node | term


def test_the_card_as_it_ships_gives_way_to_a_discount_and_a_discount_to_none(homes: Homes) -> None:
    assert homes.put_prices("b") == homes.put_prices("a", discount_pct=20) == []
    rates = homes.read()
    assert homes.put_prices("b") == [], "it says nothing of the card"
    assert homes.put_prices("b", discount_pct=20) == [], "equal prices are no conflict"
    assert homes.put_prices("b", discount_pct=10) == ["derived", "rate-card", "spot-estimate"]
    assert homes.read() == rates
    homes.at += STANDING
    assert homes.put_prices("b", discount_pct=10) == [], "a day after they were stored last"
    assert homes.read() != rates


def test_owned_servers_of_clusters_are_apart_and_those_of_all_clusters_stay(homes: Homes) -> None:
    assert homes.put_prices("a", on_prem=[own(), own("a")]) == []
    assert homes.put_prices("b", on_prem=[own(), own("b", 300_000)]) == []
    rates = homes.read()
    assert [cluster for source, cluster, *_ in rates if source == "on-prem"] == ["", "a", "b"]
    assert homes.put_prices("b", on_prem=[own(usd=9), own("b", 300_000)]) == ["on-prem"]
    assert homes.put_prices("b", on_prem=[own("a", 9), own("b", 300_000)]) == ["on-prem"]
    assert homes.read() == rates
    assert homes.put_prices("b") == homes.put_prices("a") == []
    assert homes.list_sources() == set(), "what the settings of a home no longer say is gone"


def test_commitments_of_two_names_stay_both_and_one_name_has_one_price(homes: Homes) -> None:
    assert homes.put_prices("a", commitments=[reserve("y")]) == []
    assert homes.put_prices("b", commitments=[reserve("y"), reserve("z", 16)]) == []
    assert homes.list_sources() == {"commitment y", "commitment z"}
    assert homes.put_prices("b", commitments=[reserve("y", nodes=5)]) == ["commitment y"]
    assert homes.list_sources() == {"commitment y"}
    assert homes.put_prices("a", commitments=[reserve("y", 30)]) == [], "its home changes it"
    assert [usd for source, _, _, usd, _ in homes.read() if "commitment" in source] == [30]
