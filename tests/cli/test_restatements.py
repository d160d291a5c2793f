"""A home that older rules accounted is accounted anew: open months, and ended ones if asked."""

import csv
import io
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fallow.settings import load
from runtime.cli.options import CommandRun
from tests.cli.conftest import Fallow
from warehouse import restatements, schema
from warehouse.lake import Warehouse

NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)
ENDED, OPEN = datetime(2026, 2, 27, tzinfo=UTC), datetime(2026, 3, 1, tzinfo=UTC)
HOURS = 4
VERSION = next(n for n, sql in schema.load_migrations().items() if "INTO restatement" in sql)


@pytest.fixture
def home(fallow: Fallow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a home with four idle hours in each month, which older rules called productive."""
    monkeypatch.setattr(CommandRun, "now", lambda _: NOW)
    times = [
        (start + timedelta(minutes=n)).timestamp()
        for start in (ENDED, OPEN)
        for n in range(60 * HOURS)
    ]
    rows = {"pod": ["a"] * len(times), "ts": times, "util": [0.0] * len(times)}
    pq.write_table(pa.table(rows), tmp_path / "samples.parquet")
    home = tmp_path / "home"
    (tmp_path / "fallow.yaml").write_text("{cluster: c, prices: {usd_per_gpu_hour: 2}}")
    ran = fallow(
        "import", "samples", tmp_path / "samples.parquet", "--columns",
        "workload=pod,ts=ts,gpu_util_pct=util", "--interval", "60s",
        "--config", tmp_path / "fallow.yaml", "--home", home,
    )  # fmt: skip
    assert ran.code == 0, ran
    settings = load(environ={}, flags={"home": home, "cluster": "c"}).settings
    with (
        Warehouse.open(settings, write=True, clock=lambda: NOW) as warehouse,
        warehouse.transaction() as cursor,
    ):
        assert restatements.list_due_months(warehouse) == [], "today's rules accounted it"
        cursor.execute("UPDATE ledger SET state = 'productive' WHERE state = 'idle'")
        cursor.execute("DROP TABLE restatement")
        cursor.execute(f"DELETE FROM schema_version WHERE version >= {VERSION}")
    return home


def states(fallow: Fallow, home: Path) -> dict[tuple[str, str], float]:
    """Return the GPU-hours of the pod in these states by month."""
    sql = (
        "SELECT strftime(bucket, '%Y-%m') AS month, state, sum(gpu_seconds) / 3600 AS h"
        " FROM ledger WHERE state IN ('idle', 'productive') GROUP BY ALL"
    )
    rows = json.loads(fallow("warehouse", "query", sql, "-o", "json", "--home", home).out)["rows"]
    return {(row["month"], row["state"]): round(row["h"], 2) for row in rows}


def upgrade(fallow: Fallow, home: Path, *words: str, code: int = 0) -> list[tuple[str, str]]:
    ran = fallow("warehouse", "upgrade", *words, "-o", "json", "--home", home)
    assert ran.code == code, ran
    rows = [(row["change"], row["name"]) for row in json.loads(ran.out)["upgrade"]]
    return [row for row in rows if row[0] in {"account", "restatement"}]


def test_an_open_month_is_accounted_anew_and_an_ended_one_only_with_restate(
    fallow: Fallow, home: Path
) -> None:
    assert upgrade(fallow, home) == [
        ("restatement", "2026-03 of c: state idle: 0.0 to 4.0 GPU-hours, $0.00 to $8.00"),
        ("restatement", "2026-03 of c: state productive: 4.0 to 0.0 GPU-hours, $8.00 to $0.00"),
    ]
    kept = {("2026-02", "productive"): 4.0, ("2026-03", "idle"): 4.0}
    assert states(fallow, home) == kept
    assert upgrade(fallow, home) == [], "it is done"
    assert states(fallow, home) == kept
    checks = json.loads(fallow("doctor", "-o", "json", "--home", home).out)["checks"]
    [row] = [row for row in checks if row["check"] == "rules"]
    assert "1 months are accounted by older rules or prices" in row["finding"]

    assert upgrade(fallow, home, "--check", "--restate", code=1) == [("account", "2026-02")]
    changed = upgrade(fallow, home, "--restate")
    # 48 hours between have no telemetry: whose they were does not depend on the month's alone.
    assert [name for _, name in changed] == [
        "2026-02 of c: state idle: 0.0 to 4.0 GPU-hours, $0.00 to $8.01",
        "2026-02 of c: state productive: 4.0 to 0.0 GPU-hours, $8.01 to $0.00",
    ]
    assert states(fallow, home) == {("2026-02", "idle"): 4.0, ("2026-03", "idle"): 4.0}


def test_a_restated_month_is_marked_on_spend_and_in_focus(fallow: Fallow, home: Path) -> None:
    upgrade(fallow, home, "--restate")
    window = ("--window", "7d", "--until", "2026-03-02T12:00:00Z", "--home", home)
    said = fallow("spend", *window).err
    assert "Restated on 2026-03-02: 2026-02 of c: state idle: 0.0 to 4.0 GPU-hours" in said
    assert "2026-03 of c" not in said, "a month that has not ended is no restatement"
    text = fallow("report", "finance", *window, "-o", "focus").out
    classes = {
        (row["BillingPeriodStart"][:7], row["ChargeClass"])
        for row in csv.DictReader(io.StringIO(text))
    }
    assert classes == {("2026-02", "Correction"), ("2026-03", "")}


def test_a_run_that_was_killed_goes_on_and_compares_with_what_was_before(
    fallow: Fallow, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(restatements, "finish_month", die)
        fallow("warehouse", "upgrade", "--home", home)
    assert states(fallow, home)["2026-03", "idle"] == 4.0
    assert [name for _, name in upgrade(fallow, home)] == [
        "2026-03 of c: state idle: 0.0 to 4.0 GPU-hours, $0.00 to $8.00",
        "2026-03 of c: state productive: 4.0 to 0.0 GPU-hours, $8.00 to $0.00",
    ]


def test_what_was_before_is_said_to_be_unknown_where_its_snapshot_has_expired(
    fallow: Fallow, home: Path
) -> None:
    settings = load(environ={}, flags={"home": home, "cluster": "c"}).settings
    with (
        Warehouse.open(settings, write=True, clock=lambda: NOW) as warehouse,
        warehouse.transaction() as cursor,
    ):
        cursor.execute("UPDATE restatement SET snapshot = 999999")
    assert upgrade(fallow, home) == [
        ("restatement", "2026-03 of c: unknown: what was before is not readable any more")
    ]
    assert upgrade(fallow, home) == [], "it is done"
