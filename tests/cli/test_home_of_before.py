"""The code of before fills a home; today's upgrades it, and says what its rules change."""

import importlib.metadata
import json
import os
import subprocess
import sys
import tomllib
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from runtime.cli.options import CommandRun
from tests.cli.conftest import Fallow, unpack_code

BEFORE = ("5644dd9d", "f18536ef")
"""The oldest code that today's dependencies run, and one of before there were restatements."""
NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)
ENDED, OPEN = datetime(2026, 2, 27, tzinfo=UTC), datetime(2026, 3, 1, tzinfo=UTC)
HOURS = 4
WATTS = {"rest": 70.0, "bursts": 180.0}
"""Both have a utilisation of 0. An H100 rests at 70 W; at 180 W it works between the readings."""
COLUMNS = "workload=pod,ts=ts,gpu_util_pct=util,power_w=power,model=model"
RUN = "import sys; from runtime.cli import main; sys.exit(main())"


def run_before(code: Path, home: Path, *words: str | Path) -> str:
    """Run a command of the older code, with its own plugins."""
    ran = subprocess.run(
        [sys.executable, "-c", RUN, *words, "--home", home],
        cwd=code,
        env={
            **{k: v for k, v in os.environ.items() if not k.startswith("FALLOW_")},
            "PYTHONPATH": str(code),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@pytest.fixture(params=BEFORE)
def home(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a home that the code of before made of four hours in each month."""
    monkeypatch.setattr(CommandRun, "now", lambda _: NOW)
    code = tmp_path / "code"
    unpack_code(request.param, code)
    project = tomllib.loads((code / "pyproject.toml").read_text())["project"]
    plugins = code / f"fallow-{importlib.metadata.version('fallow')}.dist-info"
    plugins.mkdir()
    (plugins / "METADATA").write_text("Metadata-Version: 2.1\nName: fallow\nVersion: 0\n")
    lines = [
        line
        for group, entries in project["entry-points"].items()
        for line in (f"[{group}]", *(f"{name} = {place}" for name, place in entries.items()))
    ]
    (plugins / "entry_points.txt").write_text("\n".join(lines))

    samples = [
        {
            "pod": pod,
            "ts": (start + timedelta(minutes=minute)).timestamp(),
            "util": 0.0,
            # Readings of a tenth of a watt that differ: none is frozen.
            "power": watts + minute % 7 / 10,
            "model": "NVIDIA H100 80GB HBM3",
        }
        for start in (ENDED, OPEN)
        for minute in range(60 * HOURS)
        for pod, watts in WATTS.items()
    ]
    pl.DataFrame(samples).write_parquet(tmp_path / "samples.parquet")
    config = tmp_path / "fallow.yaml"
    config.write_text("{cluster: c, prices: {usd_per_gpu_hour: 2}}")
    home, samples_file = tmp_path / "home", tmp_path / "samples.parquet"
    words = ("--columns", COLUMNS, "--interval", "60s", "--config", config)
    run_before(code, home, "import", "samples", samples_file, *words)
    return home


def read_states(fallow: Fallow, home: Path) -> dict[tuple[str, str], float]:
    """Return the GPU-hours of states other than `unknown`, by month, and of all by month."""
    sql = (
        "SELECT strftime(bucket, '%m') AS month, state, sum(gpu_seconds) / 3600 AS h"
        " FROM ledger GROUP BY ALL"
    )
    rows = json.loads(fallow("warehouse", "query", sql, "-o", "json", "--home", home).out)["rows"]
    sums: dict[tuple[str, str], float] = {}
    for row in rows:
        for state in {row["state"], "all"} - {"unknown"}:
            key = row["month"], state
            sums[key] = sums.get(key, 0.0) + row["h"]
    return {key: round(hours, 1) for key, hours in sums.items()}


def upgrade(fallow: Fallow, home: Path, *words: str) -> tuple[list[str], str]:
    ran = fallow("warehouse", "upgrade", *words, "-o", "json", "--home", home)
    assert ran.code == 0, ran.err
    rows: list[dict[str, Any]] = json.loads(ran.out)["upgrade"]
    return [row["name"] for row in rows if row["change"] == "restatement"], ran.err


@pytest.mark.long
def test_a_home_of_before_follows_todays_rules_in_its_open_month_and_in_ended_ones_by_a_flag(
    fallow: Fallow, home: Path
) -> None:
    """Its second pod's 4 of 8 hours a month are `low`, not idle: a saving that nobody has."""
    changed, said = upgrade(fallow, home)
    assert changed == [
        "2026-03 of c: state idle: 8.0 to 4.0 GPU-hours, $16.00 to $8.00",
        "2026-03 of c: state low: 0.0 to 4.0 GPU-hours, $0.00 to $8.00",
    ]
    assert "1 ended months keep their figures: --restate changes them" in said
    assert "findings are those of before, until `fallow analyze`" in said
    kept = {("02", "idle"): 7.5, ("02", "startup"): 0.5, ("02", "all"): 96.0}
    march = {("03", "idle"): 4.0, ("03", "low"): 4.0, ("03", "all"): 8.0}
    assert read_states(fallow, home) == {**kept, **march}

    changed, _ = upgrade(fallow, home, "--restate")
    # A first quarter of an hour is start-up; what drew power at once has none.
    assert changed == [
        "2026-02 of c: state idle: 7.5 to 3.8 GPU-hours, $15.02 to $7.52",
        "2026-02 of c: state low: 0.0 to 4.0 GPU-hours, $0.00 to $8.00",
        "2026-02 of c: state startup: 0.5 to 0.2 GPU-hours, $1.00 to $0.50",
    ]
    restated = {
        ("02", "idle"): 3.8,
        ("02", "low"): 4.0,
        ("02", "startup"): 0.2,
        ("02", "all"): 96.0,
    }
    assert read_states(fallow, home) == {**restated, **march}
    assert upgrade(fallow, home, "--restate")[0] == []
    assert fallow("warehouse", "verify", "--home", home).code == 0
