"""Store one scrape of a whole fleet while others query, and measure the size on disk.

Each store is one transaction: rows that are there already are left out, the new file and its
folders are flushed to the disk, then the catalog commits.
"""

import os
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks.fleet import METRICS, SyntheticFleet
from benchmarks.result import Result
from benchmarks.stopwatch import Stopwatch
from fallow.settings import Settings, load
from fallow.tables import Batch
from warehouse import maintenance
from warehouse.lake import Warehouse

START = datetime(2026, 11, 20, 6)  # noqa: DTZ001
NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
INTERVAL_S = 15.0
READERS = 3
PACE_S = 0.2
"""A scrape is stored so often beside the readers: 75 times as often as a scrape of 15 s comes."""

_READER = """
import select, sys, time
from datetime import timedelta
from fallow.settings import load
from warehouse.lake import Warehouse
flags = {"home": sys.argv[1], "cluster": "bench", "warehouse": {"threads": 1}}
settings = load(environ={}, flags=flags).settings
device = "GPU-00000000-5eed-f1ee"
questions = (
    (300, "SELECT avg(gpu_util_pct) FROM sample WHERE ts >= $since"),
    (900, "SELECT ts, gpu_util_pct FROM sample WHERE device = $device AND ts >= $since"),
    (15, "SELECT namespace, avg(power_w) FROM sample WHERE ts >= $since GROUP BY namespace"),
)
asked = 0
with Warehouse.open(settings) as warehouse:
    print("reading", flush=True)
    due = time.monotonic()
    while not select.select([sys.stdin], [], [], max(0.0, due - time.monotonic()))[0]:
        due = max(due + 0.05, time.monotonic())
        if asked % 20 == 0:
            newest = warehouse.query("SELECT max(ts) AS ts FROM sample")["ts"][0].as_py()
        seconds, question = questions[asked % len(questions)]
        values = {"since": newest - timedelta(seconds=seconds), "device": device}
        warehouse.query(question, {k: v for k, v in values.items() if f"${k}" in question})
        asked += 1
print(asked)
"""


def run(small: bool) -> list[Result]:
    """Measure at 10,000 GPUs: 120 scrapes beside three readers, an hour compacted; small: 200.

    Readers ask as dashboards do: the fleet's last five minutes, a device's last fifteen, the
    newest scrape by namespace; each sends 20 queries a second, or as many as are answered. A scrape
    comes every 200 ms, so that two cores are shared by one writer and readers that never rest.
    """
    gpus, scrape_count, hour = (200, 8, 20) if small else (10_000, 120, 240)
    with tempfile.TemporaryDirectory() as home:
        settings = load(environ={}, flags={"home": Path(home), "cluster": "bench"}).settings
        with Warehouse.open(settings, write=True, clock=lambda: NOW) as warehouse:
            fleet = SyntheticFleet(gpus)
            time_list = [START + timedelta(seconds=INTERVAL_S * k) for k in range(hour)]
            alone = _store(warehouse, fleet, time_list[: hour - scrape_count])
            beside, reader_queries = _measure_beside_readers(
                settings, warehouse, fleet, time_list[hour - scrape_count :]
            )
            return [
                *_build_results(gpus, alone, beside, reader_queries),
                *_weigh(warehouse, gpus, time_list),
            ]


def _store(
    warehouse: Warehouse, fleet: SyntheticFleet, time_list: list[datetime], pace_s: float = 0.0
) -> list[float]:
    """Return the milliseconds of each store; the scrape itself is made outside of the time."""
    times = []
    due = time.perf_counter()
    for timestamp in time_list:
        batch = Batch("sample", fleet.scrape(timestamp, INTERVAL_S))
        time.sleep(max(0.0, due - time.perf_counter()))
        due += pace_s
        began = time.perf_counter()
        ingested = warehouse.ingest([batch])
        times.append((time.perf_counter() - began) * 1e3)
        if ingested.added != batch.rows.num_rows:
            raise RuntimeError(f"{ingested} of {batch.rows.num_rows} rows")
    return times


def _measure_beside_readers(
    settings: Settings, warehouse: Warehouse, fleet: SyntheticFleet, time_list: list[datetime]
) -> tuple[list[float], int]:
    command = [sys.executable, "-c", _READER, str(settings.home)]
    readers = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(READERS)
    ]
    for reader in readers:
        if reader.stdout is None or reader.stdout.readline() != "reading\n":
            raise RuntimeError("a reader did not start")
    times = _store(warehouse, fleet, time_list, PACE_S)
    reader_queries = sum(int(reader.communicate("stop\n", timeout=60)[0]) for reader in readers)
    return times, reader_queries


def _build_results(
    gpus: int, alone: list[float], beside: list[float], reader_queries: int
) -> list[Result]:
    row_text = f"{gpus} rows x {len(METRICS)} metrics"
    note_text = (
        f"{len(beside)} scrapes; the readers sent {reader_queries} queries; load "
        f"{os.getloadavg()[0]:.1f}"
    )
    return [
        Result(
            name=f"store one scrape ({row_text}), alone: p50",
            value=_convert_time(alone, 0.5),
            unit="ms",
        ),
        Result(
            name=f"store one scrape, {READERS} readers querying: p50",
            value=_convert_time(beside, 0.5),
            unit="ms",
            reach=40,
            note=note_text,
        ),
        Result(
            name=f"store one scrape, {READERS} readers querying: p95",
            value=_convert_time(beside, 0.95),
            unit="ms",
            reach=80,
            note=f"the longest {max(beside):.0f} ms",
        ),
    ]


def _weigh(warehouse: Warehouse, gpus: int, time_list: list[datetime]) -> list[Result]:
    again = Batch("sample", _build_scrape(warehouse, time_list[len(time_list) // 2]))
    began = time.perf_counter()
    ingested = warehouse.ingest([again])
    resent = (time.perf_counter() - began) * 1e3
    if ingested.duplicates != gpus:
        raise RuntimeError(f"sent twice, stored twice: {ingested}")
    loose = _sample(warehouse)
    watch = Stopwatch()
    maintenance.compact_warehouse(warehouse)
    lap = watch.read()
    packed = _sample(warehouse)
    hours = len(time_list) * INTERVAL_S / 3600
    return [
        Result(name="send one stored scrape again (nothing is added)", value=resent, unit="ms"),
        Result(
            name=f"compact {hours:.2g} h of scrapes ({loose['files']} files)",
            value=lap.wall_s,
            unit="s",
            cpu_s=lap.cpu_s,
        ),
        Result(
            name="raw on disk, compacted",
            value=packed["bytes"] / (packed["rows"] * len(METRICS)),
            unit="B/sample",
            reach=1.6,
            note=f"{hours:.2g} h at 15 s in {packed['files']} file(s), "
            f"{loose['bytes'] / packed['bytes']:.2f}x smaller than the single scrapes; measured "
            "elsewhere on other series: Prometheus 4.37, VictoriaMetrics 1.79",
        ),
    ]


def _build_scrape(warehouse: Warehouse, timestamp: datetime) -> pa.Table:
    return warehouse.query("FROM sample WHERE ts = $ts", {"ts": timestamp})


def _sample(warehouse: Warehouse) -> dict[str, Any]:
    rows = maintenance.read_status(warehouse).to_pylist()
    return next(row for row in rows if (row["tier"], row["table"]) == ("hot", "sample"))


def _convert_time(times: list[float], share: float) -> float:
    return sorted(times)[min(int(len(times) * share), len(times) - 1)]
