"""`kill -9` of the writer at any moment: nothing acknowledged is lost, readers never notice."""

import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator

import pytest

from fallow.settings import Settings
from tests.warehouse.conftest import Reading
from warehouse.lake import Warehouse

ROWS, KILLS = 400, 2
RESENT = 2
"""Each writer starts with the last two acknowledged looks again, as a real one would."""

WRITERS = """
import os, sys, datetime as dt
from fallow.settings import load
from fallow.tables import Batch
from warehouse.lake import Warehouse
home, rows = sys.argv[1], int(sys.argv[2])
settings = load(environ={}, flags={"home": home}).settings
start = dt.datetime(2026, 11, 20)

def write(number):
    with Warehouse.open(settings, write=True) as warehouse:
        while True:
            ts = start + dt.timedelta(seconds=15 * number)
            warehouse.ingest([
                Batch.of("sample", {
                    "cluster": ["c"] * rows, "ts": [ts] * rows, "interval_s": [15.0] * rows,
                    "device": [f"GPU-{i}" for i in range(rows)],
                    "gpu_util_pct": [float(number)] * rows}),
                Batch.of("scrape", {"cluster": ["c"], "ts": [ts], "collector": ["x"],
                    "target": ["t"], "samples": [rows]}),
            ])
            print(number, flush=True)
            number += 1

# Each writer is a process of its own; born of this one, it need not load the engine's code again.
for line in sys.stdin:
    pid = os.fork()
    if not pid:
        write(int(line))
    print("writer", pid, flush=True)
    _, ended = os.waitpid(pid, 0)
    print("ended", ended, flush=True)
"""

WHOLE = """
SELECT
    (SELECT count(gpu_util_pct) FROM sample) AS rows,
    (SELECT sum(samples)::BIGINT FROM scrape) AS promised
"""


@pytest.fixture
def writers(
    settings: Settings, process: Callable[..., subprocess.Popen[str]]
) -> Iterator[subprocess.Popen[str]]:
    """Start what starts writers: a line with the first look's number begets one."""
    parent = process(WRITERS, settings.home, ROWS)
    yield parent
    parent.kill()
    parent.communicate()


def acknowledged(parent: subprocess.Popen[str], first: int, seconds: float) -> set[int]:
    """Let a writer say something new, then run on for a while, and kill it where it stands."""
    assert parent.stdin is not None
    assert parent.stdout is not None
    parent.stdin.write(f"{first}\n")
    parent.stdin.flush()
    pid = 0
    seen: set[int] = set()
    for line in parent.stdout:
        match line.split():
            case ["writer", number]:
                pid = int(number)
            case ["ended", status]:
                assert int(status) == signal.SIGKILL
                return seen
            case [number] if line.endswith("\n"):
                seen.add(int(number))
        if pid and len(seen) == RESENT + 1:
            time.sleep(seconds)  # the moment of the kill is the experiment
            os.kill(pid, signal.SIGKILL)
            pid = 0
    raise AssertionError("the writers' parent ended")


@pytest.mark.slow
def test_killed_writers_lose_nothing_and_readers_see_whole_batches(
    settings: Settings,
    writers: subprocess.Popen[str],
    reading: Reading,
) -> None:
    chance = random.Random(7)
    with Warehouse.open(settings, write=True):
        pass
    known: set[int] = set()
    with reading(settings, WHOLE, 2) as readers:
        for _ in range(KILLS):
            first = max(0, max(known, default=-1) + 1 - RESENT)
            known |= acknowledged(writers, first, chance.uniform(0.1, 0.6))
            readers.wait_for_queries(1)
    for seen in readers:
        assert seen["errors"] == []
        totals = [row["rows"] for [row] in seen["answers"]]
        assert totals == sorted(totals)
        assert totals == [row["promised"] or 0 for [row] in seen["answers"]]
    with Warehouse.open(settings, write=True) as warehouse:
        found = warehouse.query(
            "SELECT gpu_util_pct::INTEGER AS number, count(*) AS n,"
            " count(DISTINCT device) AS devices FROM sample GROUP BY ALL"
        ).to_pylist()
    assert {row["number"] for row in found} >= known
    assert {(row["n"], row["devices"]) for row in found} == {(ROWS, ROWS)}
    assert len(known) >= KILLS
