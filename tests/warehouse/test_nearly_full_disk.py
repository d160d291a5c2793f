"""A disk with a few KiB left: SQLite says "disk I/O error", which a broken disk gives, too."""

import sqlite3
import subprocess
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest

from fallow.errors import TemporaryError, WarehouseError
from fallow.system import disk_space, sqlite_file
from fallow.system.sqlite_file import SqliteFile
from tests.warehouse.small_disk import run_on_small_disk
from warehouse import failures
from warehouse.failures import explain_error

_NEARLY_FULL = """
import json, os, sys
from datetime import datetime, timedelta
from pathlib import Path
from fallow.errors import FallowError
from fallow.settings import load
from fallow.system.sqlite_file import SqliteFile
from fallow.tables import Batch
from warehouse.lake import Warehouse

home = Path(sys.argv[1])
settings = load(environ={}, flags={"home": home, "cluster": "test"}).settings
ballast = home / "ballast"

def sample(n):
    return Batch.of("sample", {
        "cluster": ["test"], "ts": [datetime(2026, 11, 20) + timedelta(minutes=n)],
        "device": ["GPU"], "interval_s": [60.0], "power_w": [1.0]})

def leave(kib):
    ballast.unlink(missing_ok=True)
    state = os.statvfs(home)
    ballast.write_bytes(bytes(max(state.f_bavail * state.f_frsize - kib * 1024, 0)))

def store(n):
    with Warehouse.open(settings, write=True) as warehouse:
        warehouse.ingest([sample(n)])

def write_journal(n):
    file = SqliteFile(home / "journal.sqlite", "journal", write=True)
    with file, file.transaction() as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS t (n)")
        connection.execute("INSERT INTO t VALUES (?)", [n])

out = {"stored": 0, "failed": []}
for write in (store, write_journal):
    write(0)
for kib in (0, 4, 8, 12, 16, 24, 48):
    for write in (store, write_journal):
        leave(kib)
        try:
            write(kib + 1)
            out["stored"] += write is store
        except FallowError as error:
            out["failed"].append([kib, write.__name__, error.exit_code, error.message])
ballast.unlink()
with Warehouse.open(settings, write=True) as warehouse:
    out["rows"] = warehouse.query("SELECT count(*) AS n FROM sample").to_pylist()[0]["n"]
print(json.dumps(out))
"""


@pytest.mark.slow
def test_a_disk_with_a_few_kib_left_is_full_and_not_broken(
    tmp_path: Path, process: Callable[..., subprocess.Popen[str]]
) -> None:
    seen = run_on_small_disk(tmp_path, process, _NEARLY_FULL)
    assert [each for each in seen["failed"] if each[2] != TemporaryError.exit_code] == []
    assert all("full" in message for *_, message in seen["failed"])
    assert any("disk I/O error" in message for *_, message in seen["failed"])
    assert seen["rows"] == 1 + seen["stored"], "what was said to be stored, and nothing else"


@pytest.mark.parametrize(
    ("text", "is_full", "kind"),
    [
        ("disk I/O error", True, TemporaryError),
        ("disk I/O error", False, WarehouseError),
        ("Could not write file: Input/output error", True, WarehouseError),
        ("disk I/O error: Input/output error", True, WarehouseError),
        ("No space left on device", False, TemporaryError),
    ],
)
def test_an_error_of_a_broken_disk_is_not_temporary(
    text: str,
    is_full: bool,
    kind: type[Exception],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(failures, "is_disk_full", lambda folder: is_full and folder == tmp_path)
    assert type(explain_error(duckdb.Error(text), str(tmp_path))) is kind


@pytest.mark.parametrize(("is_full", "kind"), [(True, TemporaryError), (False, WarehouseError)])
def test_a_journal_on_a_disk_without_space_is_temporary(
    is_full: bool, kind: type[Exception], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_file, "is_disk_full", lambda folder: is_full and folder == tmp_path)
    file = SqliteFile(tmp_path / "journal.sqlite", "journal", write=True)
    with file, pytest.raises(kind, match="journal"), file.explain_errors():
        raise sqlite3.OperationalError("disk I/O error")


def test_the_space_of_a_folder_that_does_not_exist_is_not_used_up(tmp_path: Path) -> None:
    assert not disk_space.is_disk_full(tmp_path / "absent")
    assert not disk_space.is_disk_full(tmp_path)
