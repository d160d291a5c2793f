"""Which hours a figure covers: whole ones, the same for every command, and named beside it."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from runtime.cli.options import CommandRun
from tests.copies import copied

Fallow = Callable[..., Any]
COLUMNS = ["--columns", "workload=pod,ts=ts,gpu_util_pct=util", "--interval", "60s"]
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
PODS = ("a", "b", "c", "d")
RATE = 2


class Imported(NamedTuple):
    """Homes by the start and end of their samples, and their cluster."""

    factory: pytest.TempPathFactory
    homes: dict[tuple[datetime, datetime, str], Path]


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> Callable[[datetime], None]:
    """Set the wall clock of the commands."""
    return lambda instant: monkeypatch.setattr(CommandRun, "now", lambda _run: instant)


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Imported:
    """Return homes into which something was imported already."""
    return Imported(tmp_path_factory, {})


@pytest.fixture
def put(fallow: Fallow, imported: Imported, tmp_path: Path) -> Callable[..., None]:
    """Import idle samples of four GPUs of a cluster, one a minute."""

    def call(start: datetime, end: datetime, cluster: str = "a") -> None:
        home, new = tmp_path / "home", not (tmp_path / "home").exists()
        if new and (start, end, cluster) in imported.homes:
            copied(imported.homes[start, end, cluster], home)
            return
        count = int((end - start).total_seconds() // 60)
        instants = [(start + timedelta(minutes=n)).timestamp() for n in range(count)]
        rows = {
            "pod": [pod for pod in PODS for _ in instants],
            "ts": instants * len(PODS),
            "util": [0.0] * count * len(PODS),
        }
        pq.write_table(pa.table(rows), tmp_path / "samples.parquet")
        words = ("import", "samples", tmp_path / "samples.parquet", *COLUMNS)
        ran = fallow(*words, "--rate", RATE, "--home", home, "--cluster", cluster)
        assert ran.code == 0, ran.err
        if new:
            kept = imported.factory.mktemp("imported") / "home"
            imported.homes[start, end, cluster] = copied(home, kept)

    return call


def test_a_window_of_half_hours_is_billed_by_the_whole_hours_that_it_names(
    fallow: Fallow, put: Callable[..., None], at: Callable[[datetime], None], tmp_path: Path
) -> None:
    put(NOON, NOON + timedelta(hours=4))
    at(NOON + timedelta(hours=5))
    wanted = ("--window", "2026-03-01T13:30/2026-03-01T14:30", "--home", tmp_path / "home")
    ran = fallow("spend", *wanted, "-o", "json")
    body = json.loads(ran.out)
    assert body["total"]["gpu_hours"] == pytest.approx(2 * len(PODS))
    assert body["window"] == {"start": "2026-03-01T13:00:00Z", "end": "2026-03-01T15:00:00Z"}
    assert "2026-03-01 13:00 to 2026-03-01 15:00 UTC (2h)" in ran.err
    assert "13:30 to 2026-03-01 14:30" in ran.err
    assert "whole hours" in ran.err


def test_analyze_bills_and_names_the_hours_of_spend(
    fallow: Fallow, put: Callable[..., None], at: Callable[[datetime], None], tmp_path: Path
) -> None:
    put(NOON, NOON + timedelta(hours=4))
    at(NOON + timedelta(hours=5))
    wanted = ("--window", "2026-03-01T13:30/2026-03-01T14:30", "--home", tmp_path / "home")
    spent = json.loads(fallow("spend", *wanted, "-o", "json").out)
    ran = fallow("analyze", "idle", *wanted, "-o", "json")
    found = json.loads(ran.out)
    assert found["window"] == spent["window"]
    bill = found["waterfall"]["bill"]
    assert bill["gpu_hours"] == pytest.approx(spent["total"]["gpu_hours"])
    assert bill["usd"] == pytest.approx(spent["total"]["usd"])
    assert "2026-03-01 13:00 to 2026-03-01 15:00 UTC (2h)" in ran.err


def test_whole_hours_are_named_as_they_were_requested(
    fallow: Fallow, put: Callable[..., None], at: Callable[[datetime], None], tmp_path: Path
) -> None:
    put(NOON, NOON + timedelta(hours=4))
    at(NOON + timedelta(hours=5))
    wanted = ("--window", "2026-03-01T13:00/2026-03-01T15:00", "--home", tmp_path / "home")
    ran = fallow("spend", *wanted)
    assert "whole hours" not in ran.err
    assert "2026-03-01 13:00 to 2026-03-01 15:00 UTC (2h)" in ran.err


def test_the_calendar_months_of_finance_are_windows_of_the_command_line(
    fallow: Fallow, put: Callable[..., None], at: Callable[[datetime], None], tmp_path: Path
) -> None:
    february_end = NOON.replace(hour=0)
    put(february_end - timedelta(hours=3), february_end + timedelta(hours=2))
    at(NOON)
    for text, start, end, hours in (
        ("month", "2026-03-01T00:00:00Z", "2026-03-01T02:00:00Z", 2),
        ("last-month", "2026-02-01T00:00:00Z", "2026-03-01T00:00:00Z", 3),
    ):
        ran = fallow("spend", "--window", text, "--home", tmp_path / "home", "-o", "json")
        body = json.loads(ran.out)
        assert body["window"] == {"start": start, "end": end}, text
        assert body["total"]["gpu_hours"] == hours * len(PODS), text
        assert ("the newest hour in the ledger ended 10h ago" in ran.err) is (text == "month")
    ran = fallow(
        "report", "finance", "--window", "last-month", "--home", tmp_path / "home", "-o", "md"
    )
    assert f"${3 * len(PODS) * RATE}" in ran.out
    refused = fallow("spend", "--window", "next-month", "--home", tmp_path / "home")
    assert refused.code == 2
    assert "month, last-month" in refused.err


DAY = {"start": "2026-03-01T18:00:00Z", "end": "2026-03-02T18:00:00Z"}
"""The 24 hours before NOON + 30 h."""


def test_a_relative_window_ends_at_the_newest_hour_in_the_ledger_and_says_its_age(
    fallow: Fallow, put: Callable[..., None], at: Callable[[datetime], None], tmp_path: Path
) -> None:
    put(NOON, NOON + timedelta(hours=30))
    at(NOON + timedelta(hours=30, days=6, minutes=20))
    wanted = ("--window", "24h", "--home", tmp_path / "home")
    ran = fallow("spend", *wanted, "-o", "json")
    body = json.loads(ran.out)
    assert (body["window"], body["total"]["gpu_hours"]) == (DAY, 24 * len(PODS))
    assert (body["coverage"]["hours"], body["coverage"]["hours_with_data"]) == (24, 24)
    assert "2026-03-01 18:00 to 2026-03-02 18:00 UTC (1d)" in ran.err
    assert "24 of 24 h have data" in ran.err
    assert "6d ago" in ran.err
    ran = fallow("analyze", "idle", *wanted, "-o", "json")
    assert json.loads(ran.out)["window"] == DAY
    assert "24 of 24 h have data" in ran.err
    ran = fallow("report", "finance", *wanted, "-o", "md")
    assert f"${24 * len(PODS) * RATE}" in ran.out
    assert "24 of 24 h have data" in ran.err


@pytest.mark.parametrize("until", [("--until", "now"), ()])
def test_until_now_takes_the_wall_clock_and_marks_the_hours_without_data(
    fallow: Fallow,
    put: Callable[..., None],
    at: Callable[[datetime], None],
    tmp_path: Path,
    until: tuple[str, ...],
) -> None:
    put(NOON, NOON + timedelta(hours=30))
    at(NOON + timedelta(hours=40))
    window = ("--window", "24h", *until) if until else ("--window", "24h/now")
    ran = fallow("spend", *window, "--home", tmp_path / "home", "-o", "json")
    body = json.loads(ran.out)
    assert body["window"] == {"start": "2026-03-02T04:00:00Z", "end": "2026-03-03T04:00:00Z"}
    assert body["total"]["gpu_hours"] == 14 * len(PODS)
    assert body["coverage"]["hours_with_data"] == 14
    assert "14 of 24 h have data" in ran.err
    ran = fallow("report", "finance", *window, "--home", tmp_path / "home", "-o", "md")
    assert "14 of 24 h have data" in ran.out


def test_until_needs_a_length_and_is_a_moment(
    fallow: Fallow, put: Callable[..., None], at: Callable[[datetime], None], tmp_path: Path
) -> None:
    put(NOON, NOON + timedelta(hours=2))
    at(NOON + timedelta(hours=2))
    home = ("--home", tmp_path / "home")
    ran = fallow("spend", "--window", "2h/1h", "--until", "now", *home)
    assert (ran.code, "--until" in ran.err) == (2, True)
    ran = fallow("spend", "--window", "1h", "--until", "2026-03-01T13:00", *home, "-o", "json")
    window = json.loads(ran.out)["window"]
    assert window == {"start": "2026-03-01T12:00:00Z", "end": "2026-03-01T13:00:00Z"}


def test_a_cluster_that_is_further_behind_is_named_and_holds_nobody_back(
    fallow: Fallow, put: Callable[..., None], at: Callable[[datetime], None], tmp_path: Path
) -> None:
    put(NOON, NOON + timedelta(hours=30))
    at(NOON + timedelta(hours=31))
    put(NOON, NOON + timedelta(hours=23), "b")
    names_who_is_behind(fallow, tmp_path, 7, "2026-03-02T18:00:00Z", said=True)
    put(NOON + timedelta(hours=23), NOON + timedelta(hours=24), "b")
    names_who_is_behind(fallow, tmp_path, 6, "2026-03-02T12:00:00Z", said=False)


def names_who_is_behind(
    fallow: Fallow, tmp_path: Path, behind: int, end: str, *, said: bool
) -> None:
    ran = fallow("spend", "--window", "12h", "--home", tmp_path / "home", "-o", "json")
    body = json.loads(ran.out)
    assert body["window"]["end"] == end
    hours = 24 if not said else 12 + 12 - behind
    assert body["total"]["gpu_hours"] == hours * len(PODS)
    assert ("cluster b is behind: its last hour ended 2026-03-02 11:00 UTC" in ran.err) is said
    assert ("5 of 12 h have data" in ran.err) is said
    assert [one["cluster"] for one in body["coverage"]["behind"]] == (["b"] if said else [])
    shown = fallow("spend", "--window", "12h", "--home", tmp_path / "home")
    assert ("total, in part" in shown.out) is said


def test_data_older_than_three_intervals_are_called_stale(
    fallow: Fallow, put: Callable[..., None], at: Callable[[datetime], None], tmp_path: Path
) -> None:
    put(NOON, NOON + timedelta(hours=2))
    home = ("--home", tmp_path / "home")
    at(NOON + timedelta(hours=2, seconds=180))
    for words in (["spend"], ["report", "finance", "-o", "md"]):
        ran = fallow(*words, *home)
        assert "STALE: the data of cluster a are stale" not in ran.err
        assert "The data of cluster" not in ran.out
    at(NOON + timedelta(hours=2, seconds=181))
    for words in (["spend"], ["analyze", "idle"]):
        assert "STALE: the data of cluster a are stale" in fallow(*words, *home).err
    report = fallow("report", "finance", "-o", "md", *home)
    assert "STALE: the data of cluster a are stale" in report.err
    assert "The data of cluster" in report.out


def test_coverage_counts_every_cluster_that_was_imported(
    fallow: Fallow, put: Callable[..., None], at: Callable[[datetime], None], tmp_path: Path
) -> None:
    """Of three clusters two have hours in the window; the third has its own, a day later."""
    put(NOON, NOON + timedelta(hours=4))
    put(NOON + timedelta(hours=2), NOON + timedelta(hours=6), "b")
    put(NOON + timedelta(days=1), NOON + timedelta(hours=26), "c")
    at(NOON + timedelta(hours=26))
    window = f"{NOON:%Y-%m-%dT%H:%M}/{NOON + timedelta(hours=4):%Y-%m-%dT%H:%M}"
    ran = fallow("spend", "--window", window, "--home", tmp_path / "home")
    assert "; 2 of 4 h have data of 2 of 3 clusters" in ran.err
    assert "cluster b: 2 of 4 h have data" in ran.err
    assert "cluster c: 0 of 4 h have data, and the totals lack the others" in ran.err
    newest = fallow("spend", "--window", "2h", "--home", tmp_path / "home")
    assert "; 2 of 2 h have data of 1 of 3 clusters" in newest.err
