"""One cycle of the service's collection: sources in threads beside sources in the writing thread.

Both collect from the same exporters into warehouses of their own, in turn, so that load on the
machine meets both.
"""

import tempfile
import threading
import time
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from statistics import median

from benchmarks.exposition_text import GPUS
from benchmarks.result import Result
from benchmarks.scrape import INTERVAL, NODES, SMALL_NODES, START, serve_exporters
from collectors.exporters import ExporterCollector
from fallow.settings import load
from fallow.settings.collectors import ExporterSettings
from fallow.system.daemon_threads import CallingThread
from runtime.service.metrics import SelfMetrics
from runtime.service.schedule import ServiceThreads
from runtime.service.sources import Sources, wait_for
from warehouse.lake import Warehouse

CYCLES = 9
WAIT_S = 120.0


def run(small: bool) -> list[Result]:
    """Measure wall seconds until a cycle's rows are stored, both ways in turn."""
    nodes = SMALL_NODES if small else NODES
    now = START
    seconds: dict[str, list[float]] = {"threads": [], "writing thread": []}
    with ExitStack() as stack:
        port = stack.enter_context(serve_exporters(nodes))
        threads = ServiceThreads()
        lakes: list[Warehouse] = []

        def open_sources(*, in_threads: bool) -> Sources:
            home = stack.enter_context(tempfile.TemporaryDirectory())
            settings = load(environ={}, flags={"home": Path(home), "cluster": "bench"}).settings
            section = ExporterSettings(
                targets=[f"http://127.0.0.1:{port}/node/{node}" for node in range(nodes)],
                interval=INTERVAL,
                timeout=timedelta(seconds=60),
            )
            lake = stack.enter_context(Warehouse.open(settings, write=True, clock=lambda: now))
            lakes.append(lake)
            return Sources(
                lake,
                {"exporters": ExporterCollector(section, "bench", lambda: now)},
                SelfMetrics(),
                readers=threads.readers if in_threads else CallingThread(),
                writer=threads.writer if in_threads else CallingThread(),
                stop=threading.Event(),
                since={},
            )

        ways = {
            "threads": open_sources(in_threads=True),
            "writing thread": open_sources(in_threads=False),
        }
        for _ in range(CYCLES):
            for name, sources in ways.items():
                began = time.perf_counter()
                wait_for(sources.start({"exporters"}, INTERVAL, now), WAIT_S)
                seconds[name].append(time.perf_counter() - began)
            now += INTERVAL
        for lake in lakes:
            (row,) = lake.query("SELECT count(*) AS n FROM sample").to_pylist()
            if row["n"] != nodes * GPUS * CYCLES:
                raise RuntimeError(f"{row['n']} rows of {nodes * GPUS * CYCLES} arrived")
        threads.close(time.monotonic() + WAIT_S)
    ours, before = (median(values[1:]) for values in seconds.values())
    return [
        Result(
            name="cycle with sources in threads (median)",
            value=ours,
            unit="s",
            peer="sources read in the writing thread",
            peer_value=before,
            ratio=ours / before,
            note=f"{nodes} targets, {CYCLES} cycles each, in turn",
        ),
    ]
