"""Data files that no engine may open or combine: named in words, and the others have theirs."""

import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from fallow.settings import load
from fallow.tables import Batch
from warehouse.lake import Warehouse

Fallow = Callable[..., Any]


@pytest.fixture
def home(tmp_path: Path, now: datetime) -> Path:
    """Return the home of a warehouse with two files of samples of one day."""
    home = tmp_path / "home"
    settings = load(environ={}, flags={"home": home, "cluster": "test"}).settings
    with Warehouse.open(settings, write=True, clock=lambda: now) as warehouse:
        for minute in range(2):
            data = {
                "cluster": ["test"],
                "ts": [now.replace(tzinfo=None) - timedelta(minutes=minute)],
                "device": ["GPU-0"],
                "interval_s": [60.0],
            }
            warehouse.ingest([Batch.of("sample", data)])
    return home


def run_fallow(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a command in a process of its own: one that waits or aborts ends only itself."""
    command = [str(Path(sys.executable).with_name("fallow")), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def test_a_fifo_among_the_data_files_is_named_and_delays_none(fallow: Fallow, home: Path) -> None:
    [first, *_] = sorted((home / "data/main/sample").rglob("*.parquet"))
    first.unlink()
    os.mkfifo(first)
    for command in (["query", "SELECT count(*) FROM sample"], ["verify"]):
        ran = run_fallow("warehouse", *command, "--home", home)
        assert ran.returncode == 1
        assert f"{first} is no regular file" in ran.stderr
    first.unlink()
    assert "is not there" in fallow("warehouse", "verify", "--home", home, "-o", "json").out


def test_a_wrong_row_count_is_refused_and_other_tables_are_merged(home: Path) -> None:
    with closing(sqlite3.connect(home / "catalog.sqlite")) as catalog, catalog:
        catalog.execute(
            "UPDATE ducklake_data_file SET record_count = 7 WHERE data_file_id = (SELECT"
            " max(data_file_id) FROM ducklake_data_file WHERE path LIKE '%day=%')"
        )
    ran = run_fallow("warehouse", "compact", "--home", home)
    assert ran.returncode == 1, ran.stderr
    assert "such as sample: " in ran.stderr
    assert "holds 1 rows, the catalog says 7" in ran.stderr
    with closing(sqlite3.connect(home / "catalog.sqlite")) as catalog:
        files = catalog.execute(
            "SELECT count(*) FROM ducklake_data_file AS f JOIN ducklake_table AS t USING (table_id)"
            " WHERE t.table_name = 'schema_version' AND f.end_snapshot IS NULL"
        ).fetchall()
    assert files == [(1,)]


def test_a_rewrite_of_a_table_with_inlined_rows_of_floats_passes(
    fallow: Fallow, home: Path
) -> None:
    settings = load(environ={}, flags={"home": home, "cluster": "test"}).settings
    put = (
        "INSERT INTO audit SELECT '1h', TIMESTAMP '2026-01-01' + INTERVAL (i) HOUR, 'd', '',"
        " i / 7.0, TIMESTAMP '2026-02-01' FROM range(?, ?) AS t (i)"
    )
    with Warehouse.open(settings, write=True) as warehouse:
        for statement, values in (
            (put, [0, 150]),
            (put, [150, 155]),  # so few rows are stored in the catalog, as text where it is SQLite
            ("DELETE FROM audit WHERE bucket < TIMESTAMP '2026-01-06'", None),
        ):
            with warehouse.transaction() as cursor:
                cursor.execute(statement, values)
        before = warehouse.query("FROM audit ORDER BY bucket")
    ran = fallow("warehouse", "compact", "--home", home)
    assert ran.code == 0, ran.err
    assert "rewrote 1 files" in ran.err
    with Warehouse.open(settings) as warehouse:
        assert warehouse.query("FROM audit ORDER BY bucket").equals(before)
        assert before.num_rows == 35
