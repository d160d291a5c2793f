"""Where clocks change, a day has 23 or 25 hours: each is paid once, and the days add up."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from tests.cli.conftest import ROOT

ZONE = "Europe/Berlin"
STEP = timedelta(minutes=5)
PRICE = 2.0
JSON = ("-o", "json")
COUNT = "SELECT count(DISTINCT bucket) AS n, min(bucket) AS first FROM ledger_1h"
EACH = """
import contextlib, io, json, sys
from runtime.cli import run
answers = []
for words in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.StringIO()) as told:
        assert run(words) == 0, words
    answers.append(told.getvalue())
print(json.dumps(answers))
"""


@pytest.mark.parametrize(
    ("day", "hours"),
    [
        # As the autumn's, without an hour that comes twice.
        pytest.param("2026-03-28", [24, 23, 24], marks=pytest.mark.long),
        ("2026-10-24", [24, 25, 24]),
    ],
)
def test_local_days_around_a_change_of_the_clock_add_up_to_their_window(
    tmp_path: Path, day: str, hours: list[int]
) -> None:
    first = datetime.fromisoformat(day)
    midnights = [(first + timedelta(days=n)).replace(tzinfo=ZoneInfo(ZONE)) for n in range(4)]
    start, end = midnights[0].astimezone(UTC), midnights[-1].astimezone(UTC)
    # Times as a host of this zone writes them: an hour of autumn comes twice, by its offset.
    times = [(start + STEP * n).astimezone(ZoneInfo(ZONE)) for n in range((end - start) // STEP)]
    samples = tmp_path / "samples.csv"
    rows = [f"a,{at.isoformat()},{100 * (at.hour % 2)}" for at in times]
    samples.write_text("\n".join(["pod,ts,util", *rows]), encoding="utf-8")
    columns = ("--columns", "workload=pod,ts=ts,gpu_util_pct=util", "--interval", "5m")
    windows = [*pairwise(midnights), (midnights[0], midnights[-1])]
    commands: list[tuple[str | Path, ...]] = [
        ("import", "samples", samples, *columns, "--rate", str(PRICE)),
        *(("spend", "--by", "state", "--window", "/".join(at.isoformat() for at in window))
          for window in windows),
        ("warehouse", "query", COUNT),
    ]  # fmt: skip
    _, *spends, counted = run_in_zone(tmp_path, commands)
    *days, whole = [
        (sum(float(r["gpu_hours"]) for r in spend["spend"]),
         sum(float(r["usd"]) for r in spend["spend"]))
        for spend in spends
    ]  # fmt: skip
    assert [round(gpu_hours, 6) for gpu_hours, _ in days] == hours
    assert whole == pytest.approx((sum(hours), PRICE * sum(hours)))
    assert tuple(map(sum, zip(*days, strict=True))) == pytest.approx(whole)
    [row] = counted["rows"]
    assert row["n"] == sum(hours)
    assert datetime.fromisoformat(row["first"]).replace(tzinfo=UTC) == start


def run_in_zone(folder: Path, commands: Sequence[Sequence[str | Path]]) -> list[Any]:
    """Run commands in one process of this time zone; return the JSON of each."""
    words = [[*map(str, command), "--home", str(folder / "home"), *JSON] for command in commands]
    environ = {k: v for k, v in os.environ.items() if not k.startswith("FALLOW_")}
    done = subprocess.run(
        [sys.executable, "-c", EACH, json.dumps(words)],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**environ, "PYTHONPATH": str(ROOT), "TZ": ZONE},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in json.loads(done.stdout)]
