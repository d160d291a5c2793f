"""Store scrapes of several shards at once in one catalog on PostgreSQL: the ceiling of commits.

Each shard is a process with its own warehouse; commits queue for the catalog's advisory lock. The
figure is scrapes stored per second by all of them together: a scrape is one transaction. The server
is on the same machine, without fsync, so that it measures the catalog and not the disk.
"""

import subprocess
import sys
import tempfile
import time
from datetime import datetime, timedelta
from pathlib import Path

from benchmarks.fleet import SyntheticFleet
from benchmarks.result import Result
from benchmarks.servers import PeerMissingError
from fallow.settings import load
from fallow.tables import Batch
from tests.servers import postgres
from warehouse.lake import Warehouse

START = datetime(2026, 11, 20, 6)  # noqa: DTZ001
INTERVAL_S = 30.0
SHARDS = (1, 2, 4)


def run(small: bool) -> list[Result]:
    """Measure 1, 2 and 4 shards of 10,000 GPUs together for 20 s each; small: 400, 2 s."""
    gpus, seconds = (400, 2.0) if small else (10_000, 20.0)
    if postgres.BIN is None:
        raise PeerMissingError("PostgreSQL is not installed (Debian package postgresql)")
    results: list[Result] = []
    with postgres.serving() as server:
        for count in SHARDS:
            catalog = server.catalog(f"shards{count}")
            with tempfile.TemporaryDirectory() as home:
                stored, times = _store_together(Path(home), catalog, gpus // count, count, seconds)
            results.append(
                Result(
                    name=f"scrapes stored per second, {count} shard{'s' * (count > 1)} of "
                    f"{gpus // count:,} GPUs",
                    value=stored / seconds,
                    unit="1/s",
                    note=f"{stored * (gpus // count) / seconds:,.0f} rows/s; one store takes "
                    f"{times[len(times) // 2]:.0f} ms (p50), {times[len(times) * 95 // 100]:.0f} "
                    f"ms (p95); a scrape every {INTERVAL_S:.0f} s: room for "
                    f"{stored / seconds * INTERVAL_S:,.0f} shards",
                )
            )
    return results


def _store_together(
    home: Path, catalog: str, gpus: int, count: int, seconds: float
) -> tuple[int, list[float]]:
    """Return how many scrapes all shards stored, and the milliseconds of each store, in order."""
    flags = {"home": home, "cluster": "bench", "warehouse": {"catalog": catalog}}
    with Warehouse.open(load(environ={}, flags=flags).settings, write=True):
        pass  # the tables exist before the shards begin
    command = [sys.executable, "-m", "benchmarks.shards", str(home), catalog, str(gpus)]
    shards = [
        subprocess.Popen(
            [*command, str(number), str(seconds)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(count)
    ]
    for shard in shards:
        if shard.stdout is None or shard.stdout.readline() != "ready\n":
            raise RuntimeError("a shard did not start")
    for shard in shards:
        if shard.stdin is not None:
            shard.stdin.write("go\n")
            shard.stdin.flush()
    times = [float(t) for shard in shards for t in shard.communicate(timeout=300)[0].split()]
    if any(shard.returncode for shard in shards):
        raise RuntimeError("a shard failed")
    return len(times), sorted(times)


def _store_shard(home: str, catalog: str, gpus: int, number: int, seconds: float) -> None:
    """Store scrapes of one shard for so many seconds; print the milliseconds of each."""
    warehouse_flags = {"catalog": catalog, "threads": 1, "memory_limit": "1GB"}
    flags = {"home": home, "cluster": f"shard{number}", "warehouse": warehouse_flags}
    settings = load(environ={}, flags=flags).settings
    fleet = SyntheticFleet(gpus, seed=number, cluster=f"shard{number}")
    with Warehouse.open(settings, write=True) as warehouse:
        times: list[float] = []
        batch = Batch("sample", fleet.scrape(START, INTERVAL_S))
        warehouse.ingest([batch])
        print("ready", flush=True)
        sys.stdin.readline()
        end, timestamp = time.monotonic() + seconds, START
        while time.monotonic() < end:
            timestamp += timedelta(seconds=INTERVAL_S)
            batch = Batch("sample", fleet.scrape(timestamp, INTERVAL_S))
            began = time.monotonic()
            warehouse.ingest([batch])
            if time.monotonic() <= end:
                times.append((time.monotonic() - began) * 1e3)
    print("\n".join(map(str, times)))


if __name__ == "__main__":
    _store_shard(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5]))
