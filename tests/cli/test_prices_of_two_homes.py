"""Homes over one catalog: each prices the clusters that it imports, and says what it does not."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests import engine
from tests.cli.conftest import Fallow, Ran
from warehouse.schema import load_migrations

COLUMNS = ("--columns", "workload=pod,ts=ts,gpu_util_pct=util", "--interval", "60s")
OLD = datetime(2026, 3, 1, tzinfo=UTC)
TOTALS = 'SELECT "cluster", sum(usd) / sum(gpu_seconds) * 3600 AS usd_h FROM ledger GROUP BY ALL'
RATES = (
    'SELECT "cluster", node_usd_h AS usd FROM rate'
    " WHERE source = 'settings' AND valid_to IS NULL AND term <> 'unpriced'"
)
REFUSED = "another home over this catalog prices cluster {} at {} USD per GPU-hour"


class Site:
    """Commands of homes over one catalog, by the home's name, cluster and prices."""

    def __init__(self, fallow: Fallow, folder: Path, catalog: str) -> None:
        self.fallow, self.folder, self.catalog = fallow, folder, catalog
        times = [(OLD + timedelta(minutes=n)).timestamp() for n in range(120)]
        rows = {"pod": ["a"] * 120, "ts": times, "util": [0.0] * 120}
        pq.write_table(pa.table(rows), folder / "samples.parquet")

    def run(self, home: str, cluster: str, prices: object, *words: str | Path) -> Ran:
        """Run a command of a home."""
        home = home if self.catalog else "one"
        shared = {"catalog": self.catalog, "data": str(self.folder / "data")}
        said = {"prices": prices, "warehouse": shared if self.catalog else {}}
        file = self.folder / "fallow.yaml"
        file.write_text(json.dumps(said | {"cluster": cluster}))
        ran = self.fallow(*words, "--config", file, "--home", self.folder / home)
        assert ran.code == 0, ran
        return ran

    def store(self, home: str, cluster: str, usd: float | None, **by_model: float) -> str:
        """Import the samples, and return what was said beside the result."""
        prices = {"by_model": by_model} | ({} if usd is None else {"usd_per_gpu_hour": usd})
        words = ("import", "samples", self.folder / "samples.parquet", *COLUMNS)
        return self.run(home, cluster, prices, *words).err

    def read_rates(self) -> dict[str, float]:
        """Return the settings' prices that hold now, by cluster."""
        rows = self.run("reader", "any", {}, "warehouse", "query", RATES, "-o", "json").out
        return {row["cluster"]: float(row["usd"]) for row in json.loads(rows)["rows"]}

    def paid(self) -> dict[str, float | None]:
        """Return each cluster's USD per GPU-hour as the ledger has it."""
        text = self.run("reader", "any", {}, "warehouse", "query", TOTALS, "-o", "json").out
        return {r["cluster"]: r["usd_h"] and float(r["usd_h"]) for r in json.loads(text)["rows"]}


@pytest.fixture(params=["postgres", "sqlite"])
def site(request: pytest.FixtureRequest, fallow: Fallow, tmp_path: Path) -> Site:
    """Return commands over a PostgreSQL, or of one home with several settings."""
    if request.param == "sqlite":
        return Site(fallow, tmp_path, "")
    server = request.getfixturevalue("database_server")
    return Site(fallow, tmp_path, server.catalog(f"prices{abs(hash(tmp_path)) % 10**9}"))


def test_each_home_prices_its_clusters_and_the_second_price_of_one_says_that_it_does_not(
    site: Site,
) -> None:
    site.store("first", "a", 1.5)
    assert site.store("second", "b", 2.25) == ""
    assert site.paid() == {"a": 1.5, "b": 2.25}
    if not site.catalog:  # one home: what its settings no longer say has ended, in one cluster
        site.store("first", "a", None)
        assert site.paid() == {"a": 1.5, "b": 2.25}, "hours that have a price keep it"
        assert site.read_rates() == {"b": 2.25}
        return
    assert REFUSED.format("a", "1.5") in site.store("second", "a", 2)
    rows = json.loads(site.run("second", "a", {"usd_per_gpu_hour": 2}, "doctor", "-o", "json").out)
    found = {row["finding"]: row["status"] for row in rows["checks"]}
    assert [s for words, s in found.items() if REFUSED.format("a", "1.5") in words] == ["warn"]
    assert site.store("second", "a", None) == "", "no price is no conflict"
    assert site.paid() == {"a": 1.5, "b": 2.25}
    assert "prices have changed" in site.store("first", "a", 1.75), "its home changes it"
    assert site.store("second", "a", 1.75) == "", "equal prices are no conflict"
    assert site.read_rates() == {"a": 1.75, "b": 2.25}


@pytest.mark.parametrize("site", ["postgres"], indirect=True)
def test_a_discount_stays_against_another_homes_card_and_log_and_doctor_say_so(site: Site) -> None:
    words = ("import", "samples", site.folder / "samples.parquet", *COLUMNS)
    why = "another home over this catalog prices all clusters at "
    for home, prices, is_refused in (
        ("first", {"discount_pct": 20}, False),
        ("second", {}, False),
        ("second", {"discount_pct": 10}, True),
    ):
        said = site.run(home, home, prices, *words).err
        assert (why in said) is is_refused, said
    text = site.run("second", "second", {"discount_pct": 10}, "doctor", "-o", "json").out
    found = [row["finding"] for row in json.loads(text)["checks"] if why in row["finding"]]
    assert {finding.partition("(")[2][:9] for finding in found} == {
        "rate-card",
        "derived),",
        "spot-esti",
    }
    rates = "SELECT node_usd_h FROM rate WHERE instance_type = 'p5.48xlarge' AND term = 'on-demand'"
    rows = site.run("reader", "any", {}, "warehouse", "query", rates, "-o", "json").out
    assert {float(row["node_usd_h"]) for row in json.loads(rows)["rows"]} == {round(55.04 * 0.8, 4)}


def test_the_price_of_all_clusters_of_before_becomes_one_of_each() -> None:
    connection = engine.empty()
    for name in "ab":
        connection.execute("INSERT INTO ledger (cluster, bucket) VALUES (?, ?)", [name, OLD])
    connection.execute("INSERT INTO rate (source, cluster) VALUES ('settings', ''), ('aws', '')")
    connection.execute(load_migrations()[11])
    rows = connection.execute("SELECT source, cluster FROM rate ORDER BY ALL").fetchall()
    assert rows == [("aws", ""), ("settings", "a"), ("settings", "b")]
