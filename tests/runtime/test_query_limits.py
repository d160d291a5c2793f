"""A query that takes too much time or memory ends with its process, whatever the engine does."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fallow.settings import Settings
from tests.peak_memory import run_measured
from warehouse.lake import Warehouse

ENGINE_MB, START_MB, LATE_MB = 256, 300, 200
"""The engine's limit; what the command has before it queries; what a query may take in between two
looks on a busy machine."""
ENDLESS = "SELECT sum(i) FROM range(1000000000000) AS t(i)"
_INTERRUPTED = """
import os, signal, threading, time
from runtime.cli import main
from warehouse import statements

execute = statements._execute

def press_once():
    while time.process_time() < begun + 0.5:
        pause.wait(0.01)
    os.kill(os.getpid(), signal.SIGINT)

def begin(cursor, sql, parameters):
    global begun
    if "FROM range" in sql:
        begun = time.process_time()
        threading.Thread(target=press_once).start()
    return execute(cursor, sql, parameters)

pause = threading.Event()
statements._execute = begin
main()
"""


@pytest.mark.parametrize(
    ("sql", "within", "ended_by"),
    [
        (ENDLESS, "1s", "ran for 1 s"),
        ("SELECT unnest(range(50000000)) AS i", "5m", "MiB of memory and was ended"),
        ("SELECT list(i) FROM range(90000000) AS t(i)", "5m", "memory"),
    ],
    ids=["time", "rows", "list"],
)
def test_a_query_ends_at_its_limits(tmp_path: Path, sql: str, within: str, ended_by: str) -> None:
    Warehouse.open(Settings(home=tmp_path / "home"), write=True).close()
    limits = {
        "FALLOW_WAREHOUSE__MEMORY_LIMIT": f"{ENGINE_MB}MB",
        "FALLOW_WAREHOUSE__QUERY_WITHIN": within,
    }
    command = ["warehouse", "query", sql, "-o", "json", "--home", tmp_path / "home"]
    ended = run_measured(command, limits)
    assert ended.code == 1
    assert ended_by in ended.err
    assert "hint: " in ended.err
    assert ended.peak_mib < START_MB + ENGINE_MB * 1.5 + LATE_MB


def test_a_query_that_is_interrupted_is_no_defect(tmp_path: Path) -> None:
    Warehouse.open(Settings(home=tmp_path / "home"), write=True).close()
    command = ["warehouse", "query", ENDLESS, "--home", str(tmp_path / "home")]
    ended = subprocess.run(
        [sys.executable, "-c", _INTERRUPTED, *command],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"FALLOW_WAREHOUSE__QUERY_WITHIN": "30s"},
    )
    assert (ended.returncode, ended.stderr) == (130, "fallow: interrupted\n")
