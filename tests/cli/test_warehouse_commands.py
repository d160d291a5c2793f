"""`fallow warehouse status | compact | verify | query`, from the command line to the files."""

import json
import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from fallow.settings import load
from fallow.tables import Batch
from warehouse.lake import Warehouse
from warehouse.lock import WriterLock

Fallow = Callable[..., Any]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Return the home of a warehouse with looks of today and of 20 days ago, in four files."""
    home = tmp_path / "home"
    today = datetime.now(UTC).replace(tzinfo=None, hour=0, minute=0, second=0, microsecond=0)
    settings = load(environ={}, flags={"home": home, "cluster": "test"}).settings
    with Warehouse.open(settings, write=True) as warehouse:
        for instant in (today - timedelta(days=20), today - timedelta(days=1)):
            for minute in range(2):
                data = {
                    "cluster": ["test"],
                    "ts": [instant + timedelta(minutes=minute)],
                    "device": ["GPU-0"],
                    "interval_s": [60.0],
                    "gpu_util_pct": [float(minute)],
                }
                warehouse.ingest([Batch.of("sample", data)])
    return home


def answer(ran: Any) -> Any:
    assert ran.code == 0, ran.err
    return json.loads(ran.out)


def test_compact_moves_merges_and_shows_what_lies_where(fallow: Fallow, home: Path) -> None:
    before = answer(fallow("warehouse", "status", "--home", home, "-o", "json"))
    assert before["schema"] == "fallow.status/v1"
    [hot] = [row for row in before["status"] if row["tier"] == "hot"]
    assert (hot["table"], hot["rows"], hot["files"]) == ("sample", 4, 4)
    ran = fallow("warehouse", "compact", "--home", home, "-o", "json")
    assert "moved 1 days (2 rows) to the cold tier" in ran.err
    assert "merged 2 " in ran.err
    tiers = {(row["tier"], row["table"]): row for row in answer(ran)["status"]}
    assert tiers["hot", "sample"]["files"] == tiers["cold", "sample"]["files"] == 1
    assert tiers["hot", "sample"]["rows"] == tiers["cold", "sample"]["rows"] == 2
    wanted = fallow(
        "warehouse", "query", "SELECT sum(gpu_util_pct) AS x FROM sample", "--home", home, "-o",
        "csv",
    )  # fmt: skip
    assert wanted.out == "x\n2.0\n"


def test_verify_shows_each_check_and_fails_with_the_damaged_file(
    fallow: Fallow, home: Path
) -> None:
    assert fallow("warehouse", "compact", "--home", home).code == 0
    sound = answer(fallow("warehouse", "verify", "--home", home, "-o", "json"))["checks"]
    assert {row["status"] for row in sound} == {"ok"}
    names = {row["check"] for row in sound}
    assert names >= {"catalog", "sample", "cold sample", "audit ledger_capacity", "audit future"}
    [archived] = (home / "cold" / "sample").rglob("*.parquet")
    archived.write_bytes(archived.read_bytes()[:-1])
    ran = fallow("warehouse", "verify", "--home", home, "-o", "json")
    assert ran.code == 1
    [bad] = [
        row
        for row in json.loads(ran.out)["checks"]
        if row["check"].startswith("cold ") and row["status"] != "ok"
    ]
    assert bad["check"] == f"cold sample: {archived}"
    assert bad["status"] == "failed"
    assert "bytes" in bad["detail"]
    assert "restore it from a backup" in bad["detail"]


def test_a_damaged_file_that_audits_need_does_not_hide_the_other_checks(
    fallow: Fallow, home: Path
) -> None:
    [one, *_] = (home / "data" / "main" / "sample").rglob("*.parquet")
    one.unlink()
    ran = fallow("warehouse", "verify", "--home", home, "-o", "json")
    assert ran.code == 1
    checks = {row["check"]: row["status"] for row in json.loads(ran.out)["checks"]}
    assert checks["catalog"] == "ok"
    assert checks[f"sample: {one}"] == "failed"
    wanted = fallow("warehouse", "query", "SELECT sum(gpu_util_pct) FROM sample", "--home", home)
    assert wanted.code == 1
    assert "a data file is gone" in wanted.err
    assert "fallow warehouse verify" in wanted.err


def test_compacting_beside_another_writer_is_told_to_try_again(fallow: Fallow, home: Path) -> None:
    lock = WriterLock(home / "writer.lock")
    lock.acquire()
    try:
        ran = fallow("warehouse", "compact", "--home", home)
    finally:
        lock.release()
    assert ran.code == 75
    assert "is writing to the warehouse" in ran.err
    assert ran.out == ""
    # Readers need no lock.
    assert fallow("warehouse", "status", "--home", home).code == 0


def test_relocate_stores_where_the_archive_is_now(
    fallow: Fallow, home: Path, tmp_path: Path
) -> None:
    assert fallow("warehouse", "compact", "--home", home).code == 0
    (tmp_path / "fallow.yaml").write_text(f"warehouse: {{cold: {tmp_path / 'archive'}}}\n")
    shutil.copytree(home / "cold", tmp_path / "archive")
    options = ("--config", tmp_path / "fallow.yaml", "--home", home, "-o", "csv")
    ran = fallow("warehouse", "relocate", *options)
    assert ran.code == 0, ran.err
    assert ran.out.splitlines() == [
        "part,from,to,files,missing",
        f"archive,{home}/cold,{tmp_path}/archive,1,0",
    ]
    again = fallow("warehouse", "relocate", *options)
    assert (again.code, "every file is where the catalog says" in again.err) == (0, True)
