"""A price that changes: hours that have a price keep it, or are restated where it names them."""

import csv
import io
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from runtime.cli.options import CommandRun
from tests.cli.conftest import Fallow, Ran

NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)
ENDED, OPEN = datetime(2026, 2, 28, 20, tzinfo=UTC), datetime(2026, 3, 1, tzinfo=UTC)
HOURS = 4
PAID = "SELECT strftime(bucket, '%Y-%m') AS month, sum(usd)::DOUBLE AS usd FROM ledger GROUP BY ALL"


class Home:
    """A home of cluster c: its settings of prices change from command to command."""

    def __init__(self, fallow: Fallow, folder: Path) -> None:
        self.fallow, self.folder, self.prices = fallow, folder, "{}"

    def run(self, *words: str | Path, code: int = 0) -> Ran:
        file = self.folder / "fallow.yaml"
        file.write_text(f"{{cluster: c, prices: {self.prices}}}")
        ran = self.fallow(*words, "--config", file, "--home", self.folder / "home")
        assert ran.code == code, ran
        return ran

    def store(
        self, *starts: datetime, prices: str = "{}", words: tuple[str, ...] = (), code: int = 0
    ) -> Ran:
        """Import four hours of a GPU from each start on."""
        self.prices = prices
        minutes = [start + timedelta(minutes=n) for start in starts for n in range(60 * HOURS)]
        times = [time.timestamp() for time in minutes]
        rows = {"pod": ["a"] * len(times), "ts": times, "util": [0.0] * len(times)}
        pq.write_table(pa.table(rows), self.folder / "samples.parquet")
        return self.run(
            "import", "samples", self.folder / "samples.parquet", "--columns",
            "workload=pod,ts=ts,gpu_util_pct=util", "--interval", "60s", *words, code=code,
        )  # fmt: skip

    def query(self, sql: str) -> list[dict[str, object]]:
        rows = json.loads(self.run("warehouse", "query", sql, "-o", "json").out)["rows"]
        assert isinstance(rows, list)
        return rows

    def paid(self) -> dict[object, object]:
        """Return the dollars of the ledger by month."""
        return {row["month"]: row["usd"] for row in self.query(PAID)}

    def upgrade(self, *words: str, code: int = 0) -> list[tuple[str, str]]:
        text = self.run("warehouse", "upgrade", *words, "-o", "json", code=code).out
        return [(row["change"], row["name"]) for row in json.loads(text)["upgrade"]]


@pytest.fixture
def home(fallow: Fallow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.setattr(CommandRun, "now", lambda _: NOW)
    return Home(fallow, tmp_path)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (("{}", ("--rate", "2")), ("{}", ("--rate", "3"))),
        (("{usd_per_gpu_hour: 2}", ()), ("{usd_per_gpu_hour: 3}", ())),
        (("{usd_per_gpu_hour: 2}", ()), ("{discount_pct: 5}", ())),
    ],
)
def test_hours_that_have_a_price_keep_it(
    home: Home,
    before: tuple[str, tuple[str, ...]],
    after: tuple[str, tuple[str, ...]],
) -> None:
    home.store(ENDED, OPEN, prices=before[0], words=before[1])
    assert home.paid() == {"2026-02": 8.0, "2026-03": 8.0}
    printed = home.store(ENDED, OPEN, prices=after[0], words=after[1]).err
    assert home.paid() == {"2026-02": 8.0, "2026-03": 8.0}
    assert "valid_from" in printed or "--valid-from" in printed


def test_hours_without_a_price_take_the_new_one(home: Home) -> None:
    home.store(ENDED, prices="{usd_per_gpu_hour: 2}")
    home.store(OPEN, prices="{usd_per_gpu_hour: 3}")
    assert home.paid() == {"2026-02": 8.0, "2026-03": 12.0}
    assert home.query("SELECT * FROM restatement") == []


def test_a_first_price_holds_for_hours_that_had_none(home: Home) -> None:
    home.store(ENDED, OPEN)
    assert home.paid() == {"2026-02": None, "2026-03": None}
    home.store(OPEN, prices="{usd_per_gpu_hour: 2}")
    assert home.paid() == {"2026-02": 8.0, "2026-03": 8.0}


def test_a_corrected_price_restates_the_open_month_and_an_ended_one_only_with_restate(
    home: Home,
) -> None:
    home.store(ENDED, OPEN, prices="{usd_per_gpu_hour: 2}")
    correction = "{usd_per_gpu_hour: 3, valid_from: 2026-02-01T00:00:00Z}"
    printed = home.store(OPEN, prices=correction).err
    assert home.paid() == {"2026-02": 8.0, "2026-03": 12.0}
    assert "fallow warehouse upgrade --restate" in printed
    window = ("--window", "7d", "--until", "2026-03-02T12:00:00Z")
    restated = "2026-03 of c: price: 4.0 to 4.0 GPU-hours, $8.00 to $12.00"
    assert restated in home.run("spend", *window).err
    checks = json.loads(home.run("doctor", "-o", "json").out)["checks"]
    [row] = [row for row in checks if row["check"] == "rules"]
    assert "2026-02" in row["finding"]

    assert home.upgrade("--check", "--restate", code=1) == [("account", "2026-02")]
    assert home.upgrade("--restate") == [
        ("restatement", "2026-02 of c: price: 4.0 to 4.0 GPU-hours, $8.00 to $12.00")
    ]
    assert home.paid() == {"2026-02": 12.0, "2026-03": 12.0}
    assert home.upgrade("--check", "--restate") == []
    text = home.run("report", "finance", *window, "-o", "focus").out
    classes = {
        (row["BillingPeriodStart"][:7], row["ChargeClass"])
        for row in csv.DictReader(io.StringIO(text))
    }
    assert classes == {("2026-02", "Correction"), ("2026-03", "")}


def test_a_correction_that_is_taken_back_restates_nothing(home: Home) -> None:
    home.store(ENDED, OPEN, prices="{usd_per_gpu_hour: 2}")
    home.store(OPEN, prices="{usd_per_gpu_hour: 3, valid_from: 2026-02-01T00:00:00Z}")
    home.store(OPEN, prices="{usd_per_gpu_hour: 2, valid_from: 2026-02-01T00:00:00Z}")
    assert home.upgrade("--check", "--restate") == []
    assert home.paid() == {"2026-02": 8.0, "2026-03": 8.0}


def test_a_rate_of_an_import_says_from_when_it_holds(home: Home) -> None:
    home.store(ENDED, OPEN, words=("--rate", "2"))
    correction = ("--rate", "3", "--valid-from", "2026-02-01")
    refused = home.store(OPEN, words=correction, code=2).err
    assert "2026-02" in refused
    assert "--restate" in refused
    assert home.paid() == {"2026-02": 8.0, "2026-03": 8.0}
    home.store(OPEN, words=(*correction, "--restate"))
    assert home.paid() == {"2026-02": 12.0, "2026-03": 12.0}
    home.store(OPEN, words=("--rate", "4", "--valid-from", "2026-03-01T02:00"))
    assert home.paid() == {"2026-02": 12.0, "2026-03": 14.0}
    rows = home.query("SELECT month, cause, usd_before, usd_after FROM restatement ORDER BY month")
    assert [(row["cause"], float(str(row["usd_after"]))) for row in rows] == [
        ("price", 12.0),
        ("price", 14.0),
    ]
    assert [float(str(row["usd_before"])) for row in rows] == [8.0, 8.0], "as first billed"
