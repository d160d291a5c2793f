"""One timestamp of 1970 costs its own row: no pass of the accounting reaches back to it."""

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from fallow.settings import Settings, load
from fallow.tables import Batch
from fallow.window import Window
from runtime.operations.accounting import pipeline
from warehouse.ingest import LATE, check_times
from warehouse.lake import Warehouse

Fallow = Callable[..., Any]
UTIL = 'DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-1",Hostname="node"} '


def read_settings(home: Path) -> Settings:
    return load(environ={}, flags={"home": home, "cluster": "test"}).settings


def write_text(path: Path, times: list[datetime]) -> Path:
    """Write values of one GPU at times, which are aware."""
    lines = [f"{UTIL}{70} {int(time.timestamp() * 1000)}\n" for time in times]
    path.write_text("".join(lines))
    return path


def list_last(end: datetime, minutes: int = 130) -> list[datetime]:
    return [end - timedelta(minutes=k) for k in range(minutes, 0, -1)]


def import_text(fallow: Fallow, home: Path, file: Path) -> dict[str, Any]:
    ran = fallow("import", "exposition", file, "--home", home, "-o", "json")
    assert ran.code == 0, ran.err
    return dict(json.loads(ran.out)["import"][0])


def count(home: Path, sql: str) -> int:
    with Warehouse.open(read_settings(home)) as warehouse:
        return int(warehouse.query(sql).column(0)[0].as_py())


@pytest.mark.parametrize(
    ("stamp", "refused", "hours"),
    [
        (datetime(1970, 1, 1, tzinfo=UTC), 1, 4),
        # The hours around it are unknown, those of the years between are not the GPU's.
        (datetime(2019, 5, 1, tzinfo=UTC), 0, 100 * 24),
    ],
    ids=["no time of a GPU", "years ago"],
)
def test_an_import_of_one_old_line_of_a_known_gpu_ends(
    fallow: Fallow, tmp_path: Path, stamp: datetime, refused: int, hours: int
) -> None:
    home, end = tmp_path / "home", datetime.now(UTC) - timedelta(minutes=2)
    import_text(fallow, home, write_text(tmp_path / "known.txt", list_last(end)))
    summary = import_text(fallow, home, write_text(tmp_path / "old.txt", [stamp, end]))
    assert summary["old"] == refused
    assert summary["rows"] == summary["added"] + summary["old"]
    again = import_text(fallow, home, write_text(tmp_path / "next.txt", [end]))
    assert again["old"] == 0
    assert count(home, "SELECT count(*) FROM unposted") == 0
    assert count(home, "SELECT count(DISTINCT bucket) FROM ledger") <= hours
    rejected = "SELECT coalesce(sum(count), 0) FROM rejection WHERE name = 'GPU-1'"
    assert count(home, rejected) == refused


def test_a_table_is_bounded_by_its_own_time(fallow: Fallow, tmp_path: Path) -> None:
    home, end = tmp_path / "home", datetime.now(UTC) - timedelta(minutes=2)
    odd = datetime(2022, 6, 1, tzinfo=UTC)
    rows = [f"{time.timestamp():.0f},job,GPU-1,97" for time in (odd, *list_last(end))]
    (tmp_path / "t.csv").write_text("\n".join(["ts,job,gpu,util", *rows]))
    columns = "workload=job,device=gpu,ts=ts,gpu_util_pct=util"
    words = ("import", "samples", tmp_path / "t.csv", "--columns", columns, "--interval", "1m")
    ran = fallow(*words, "--home", home, "-o", "json")
    assert ran.code == 0, ran.err
    summary = json.loads(ran.out)["import"][0]
    assert (summary["rows"], summary["old"], summary["added"]) == (131, 1, 130)
    assert "GPU-1: 2022-06-01 is long before" in ran.err
    assert count(home, "SELECT count(DISTINCT bucket) FROM ledger") <= 4
    assert count(home, "SELECT year(min(first_seen)) FROM pod") == end.year


def test_a_home_with_marks_of_1970_recovers_at_its_next_pass(
    fallow: Fallow, tmp_path: Path
) -> None:
    home, end = tmp_path / "home", datetime.now(UTC) - timedelta(minutes=2)
    import_text(fallow, home, write_text(tmp_path / "known.txt", list_last(end)))
    with (
        Warehouse.open(read_settings(home), write=True) as warehouse,
        warehouse.transaction() as cursor,
    ):
        cursor.execute("UPDATE device SET first_seen = TIMESTAMP '1970-01-01'")
        cursor.execute(
            "INSERT INTO unposted (bucket) SELECT unnest(range(TIMESTAMP '1970-01-01',"
            " now()::TIMESTAMP, INTERVAL 1 HOUR)) + INTERVAL 1 MICROSECOND"
        )
        cursor.execute("INSERT INTO unposted (bucket) VALUES (TIMESTAMP '0001-01-01')")
    ran = fallow("import", "exposition", write_text(tmp_path / "next.txt", [end]), "--home", home)
    assert ran.code == 0, ran.err
    assert "hours far from all telemetry are not accounted" in ran.err
    [hours] = re.findall(r'"hours": ?(\d+)', ran.err)
    assert int(hours) > 490_000
    assert count(home, "SELECT count(*) FROM unposted") == 0
    assert count(home, "SELECT count(DISTINCT bucket) FROM ledger") <= 100 * 24


def test_old_times_of_pods_nodes_prices_and_events_mark_no_hours(
    tmp_path: Path, now: datetime
) -> None:
    old = [datetime(1, 1, 1), datetime(1970, 1, 1)]  # noqa: DTZ001  (naive UTC)
    names = ["a", "b"]
    last = {"first_seen": old, "last_seen": [now.replace(tzinfo=None)] * 2}
    who = {"namespace": ["ml"] * 2, "workload_kind": ["Job"] * 2, "workload": names}
    batches = [
        Batch.of("node", {"cluster": ["test"] * 2, "node": ["node", "other"], **last}),
        Batch.of(
            "pod",
            {
                **last, **who, "cluster": ["test"] * 2, "uid": names, "pod": names,
                "node": ["node"] * 2,
                "created_at": old, "scheduled_at": old, "started_at": old, "gpu_request": [1.0] * 2,
                "phase": ["Running"] * 2, "team": names, "devices": ['["GPU-1"]'] * 2,
            },
        ),
        Batch.of("event", {"cluster": ["test"] * 2, "uid": names, "ts": old, "name": names}),
    ]  # fmt: skip
    sample = {
        "cluster": ["test"], "ts": [now.replace(tzinfo=None) - timedelta(minutes=10)],
        "device": ["GPU-1"], "node": ["node"], "interval_s": [60.0], "gpu_util_pct": [50.0],
    }  # fmt: skip
    window = Window(now - timedelta(hours=3), now)
    with Warehouse.open(read_settings(tmp_path), write=True, clock=lambda: now) as warehouse:
        warehouse.ingest([Batch.of("sample", sample)])
        pipeline.account(warehouse, window)
        warehouse.ingest(batches)
        pipeline.account(warehouse, window)
        pipeline.account(warehouse, window)
        assert warehouse.query("FROM unposted").num_rows == 0
        assert warehouse.query("SELECT DISTINCT bucket FROM ledger").num_rows <= 4


def test_samples_of_a_live_source_are_no_older_than_what_was_read(
    tmp_path: Path, now: datetime
) -> None:
    edge = now.replace(tzinfo=None) - LATE
    times = [edge, edge - timedelta(seconds=1), edge - timedelta(days=300)]
    sample = {
        "cluster": ["test"] * 3, "ts": times, "device": ["GPU-1", "GPU-2", "GPU-3"],
        "source": ["exporters"] * 3, "interval_s": [60.0] * 3,
    }  # fmt: skip
    with Warehouse.open(read_settings(tmp_path), write=True, clock=lambda: now) as warehouse:
        rejected, recent = check_times(warehouse, [Batch.of("sample", sample)], now)
    assert recent.rows["device"].to_pylist() == ["GPU-1"]
    assert rejected.table == "rejection"
    assert rejected.rows["name"].to_pylist() == ["GPU-2", "GPU-3"]
    assert rejected.rows["source"].to_pylist() == ["exporters"] * 2
