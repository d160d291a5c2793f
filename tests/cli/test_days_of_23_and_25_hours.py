"""Where clocks change, a day has 23 or 25 hours: each is paid once, and the days add up."""

import json
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from tests.cli.conftest import Fallow

ZONE = "Europe/Berlin"
STEP = timedelta(minutes=5)
PRICE = 2.0


@pytest.mark.parametrize(
    ("day", "hours"),
    [
        # As the autumn's, without an hour that comes twice.
        pytest.param("2026-03-28", [24, 23, 24], marks=pytest.mark.long),
        ("2026-10-24", [24, 25, 24]),
    ],
)
def test_local_days_around_a_change_of_the_clock_add_up_to_their_window(
    process: Fallow, tmp_path: Path, day: str, hours: list[int]
) -> None:
    first = datetime.fromisoformat(day)
    midnights = [(first + timedelta(days=n)).replace(tzinfo=ZoneInfo(ZONE)) for n in range(4)]
    start, end = midnights[0].astimezone(UTC), midnights[-1].astimezone(UTC)
    # Times as a host of this zone writes them: an hour of autumn comes twice, by its offset.
    times = [(start + STEP * n).astimezone(ZoneInfo(ZONE)) for n in range((end - start) // STEP)]
    samples = tmp_path / "samples.csv"
    rows = [f"a,{at.isoformat()},{100 * (at.hour % 2)}" for at in times]
    samples.write_text("\n".join(["pod,ts,util", *rows]), encoding="utf-8")

    def run(*words: str | Path) -> str:
        answer = process(*words, "--home", tmp_path / "home", TZ=ZONE)
        assert answer.code == 0, answer.err
        return answer.out

    def spend(since: datetime, until: datetime) -> tuple[float, float]:
        words = ("--by", "state", "--window", f"{since.isoformat()}/{until.isoformat()}")
        rows = json.loads(run("spend", *words, "-o", "json"))["spend"]
        return (sum(float(r["gpu_hours"]) for r in rows), sum(float(r["usd"]) for r in rows))

    columns = ("--columns", "workload=pod,ts=ts,gpu_util_pct=util", "--interval", "5m")
    run("import", "samples", samples, *columns, "--rate", str(PRICE))
    days = [spend(*pair) for pair in pairwise(midnights)]
    assert [round(gpu_hours, 6) for gpu_hours, _ in days] == hours
    whole = spend(midnights[0], midnights[-1])
    assert whole == pytest.approx((sum(hours), PRICE * sum(hours)))
    assert tuple(map(sum, zip(*days, strict=True))) == pytest.approx(whole)
    count = "SELECT count(DISTINCT bucket) AS n, min(bucket) AS first FROM ledger_1h"
    [row] = json.loads(run("warehouse", "query", count, "-o", "json"))["rows"]
    assert row["n"] == sum(hours)
    assert datetime.fromisoformat(row["first"]).replace(tzinfo=UTC) == start
