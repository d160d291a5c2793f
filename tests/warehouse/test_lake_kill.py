"""`kill -9` of the writer at any moment: nothing acknowledged is lost, readers never notice."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from fallow.settings import Settings
from warehouse.lake import Warehouse

ROWS, KILLS = 400, 4

WRITER = """
import sys, datetime as dt
from fallow.settings import load
from fallow.tables import Batch
from warehouse.lake import Warehouse
home, first, rows = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
settings = load(environ={}, flags={"home": home}).settings
start = dt.datetime(2026, 11, 20)
with Warehouse.open(settings, write=True) as warehouse:
    number = first
    while True:
        ts = start + dt.timedelta(seconds=15 * number)
        warehouse.ingest([
            Batch.of("sample", {
                "cluster": ["c"] * rows, "ts": [ts] * rows, "interval_s": [15.0] * rows,
                "device": [f"GPU-{i}" for i in range(rows)],
                "gpu_util_pct": [float(number)] * rows}),
            Batch.of("scrape", {"cluster": ["c"], "ts": [ts], "collector": ["x"], "target": ["t"],
                "samples": [rows]}),
        ])
        print(number, flush=True)
        number += 1
"""

READER = """
import json, sys, time
from pathlib import Path
from fallow.settings import load
from warehouse.lake import Warehouse
home, stop = sys.argv[1], Path(sys.argv[2])
settings = load(environ={}, flags={"home": home}).settings
seen = {"queries": 0, "errors": [], "half": 0, "backwards": 0}
last = 0
with Warehouse.open(settings) as warehouse:
    while not stop.exists():
        try:
            row = warehouse.query(
                "SELECT (SELECT count(gpu_util_pct) FROM sample) AS rows,"
                " (SELECT sum(samples) FROM scrape) AS promised").to_pylist()[0]
        except Exception as error:
            seen["errors"].append(repr(error))
            continue
        seen["queries"] += 1
        seen["half"] += row["rows"] != (row["promised"] or 0)
        seen["backwards"] += row["rows"] < last
        last = row["rows"]
print(json.dumps(seen))
"""


def _start(*command: object) -> subprocess.Popen[str]:
    root = Path(__file__).parents[2]
    return subprocess.Popen(
        [sys.executable, "-c", *map(str, command)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(root)},
    )


def _acknowledged(writer: subprocess.Popen[str], seconds: float) -> list[int]:
    """Let the writer acknowledge once, then run on for a while, and kill it where it stands."""
    assert writer.stdout is not None
    first = writer.stdout.readline()
    time.sleep(seconds)  # the moment of the kill is the experiment
    writer.send_signal(signal.SIGKILL)
    rest = writer.stdout.read()
    writer.wait()
    return [int(line) for line in (first + rest).splitlines(keepends=True) if line.endswith("\n")]


def test_killed_writers_lose_nothing_and_readers_see_whole_batches(
    settings: Settings, tmp_path: Path
) -> None:
    chance = random.Random(7)
    with Warehouse.open(settings, write=True):
        pass
    stop = tmp_path / "stop"
    readers = [_start(READER, settings.home, stop) for _ in range(2)]
    acknowledged: set[int] = set()
    resume = 0
    for _ in range(KILLS):
        # Each writer starts with the last two acknowledged looks again, as a real one would.
        writer = _start(WRITER, settings.home, resume, ROWS)
        acknowledged.update(_acknowledged(writer, chance.uniform(0.2, 0.9)))
        resume = max(0, max(acknowledged) - 1)
    stop.touch()
    for reader in readers:
        out, _ = reader.communicate(timeout=60)
        seen = json.loads(out)
        assert seen["errors"] == []
        assert (seen["half"], seen["backwards"]) == (0, 0)
        assert seen["queries"] > 3
    with Warehouse.open(settings, write=True) as warehouse:
        found = warehouse.query(
            "SELECT gpu_util_pct::INTEGER AS number, count(*) AS n,"
            " count(DISTINCT device) AS devices FROM sample GROUP BY ALL"
        ).to_pylist()
    assert {row["number"] for row in found} >= acknowledged
    assert {(row["n"], row["devices"]) for row in found} == {(ROWS, ROWS)}
    assert len(acknowledged) > KILLS
