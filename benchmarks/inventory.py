"""Account a small fleet hour by hour where an old inventory lies: what each turn reads of it."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa

from benchmarks.fleet import SyntheticFleet, build_devices, build_scrapes
from benchmarks.result import Result
from benchmarks.stopwatch import Lap, Stopwatch
from fallow import tables
from fallow.settings import load
from fallow.tables import Batch
from fallow.window import Window
from runtime.operations.accounting import pipeline
from warehouse.lake import Warehouse

END = datetime(2026, 11, 20, tzinfo=UTC)
GPUS, STEP = 40, timedelta(minutes=5)
HOUR = timedelta(hours=1)
PODS, POD_DAYS = 805, 70
POD_LIFE = timedelta(hours=30)
REACH_CPU_S = 10


def run(small: bool) -> list[Result]:
    """Measure 14 days of 40 GPUs beside 805 pods of 70 days, and hourly turns; small: a day."""
    days, turns = (1, 3) if small else (14, 24)
    clock = [END - timedelta(days=days)]
    fleet = SyntheticFleet(GPUS)
    with TemporaryDirectory() as folder:
        flags = {"home": Path(folder), "cluster": "bench", "prices.usd_per_gpu_hour": "2.00"}
        settings = load(environ={}, flags=flags).settings
        with Warehouse.open(settings, write=True, clock=lambda: clock[0]) as warehouse:
            pods = pa.Table.from_pylist([*_build_pods()], schema=tables.get_schema("pod"))
            warehouse.ingest([Batch("pod", pods)])
            _store(warehouse, fleet, clock, timedelta(days=days))
            whole = _account(warehouse, Window(END - timedelta(days=days), END))
            laps = []
            for _ in range(turns):
                _store(warehouse, fleet, clock, HOUR)
                laps.append(
                    _account(warehouse, Window(clock[0] - pipeline.LEDGER_LOOKBACK, clock[0]))
                )
    of = f"of {GPUS} GPUs, {PODS} pods of old"
    hourly = sum(lap.cpu_s for lap in laps)
    return [
        Result(
            name=f"account {days} d at once, {of}",
            value=whole.cpu_s,
            unit="CPU s",
            cpu_s=whole.cpu_s,
            reach=REACH_CPU_S,
        ),
        Result(
            name=f"account {turns} h by the hour, {of}",
            value=hourly,
            unit="CPU s",
            cpu_s=hourly,
            note=f"{hourly / turns * 1e3:.0f} ms a turn",
        ),
    ]


def _store(
    warehouse: Warehouse, fleet: SyntheticFleet, clock: list[datetime], span: timedelta
) -> None:
    scrapes = build_scrapes(fleet, clock[0], span // STEP, STEP.total_seconds())
    clock[0] += span
    devices = build_devices(scrapes[-1], clock[0], STEP)
    warehouse.ingest([Batch("sample", pa.concat_tables(scrapes)), devices])


def _account(warehouse: Warehouse, window: Window) -> Lap:
    watch = Stopwatch()
    pipeline.account(warehouse, window)
    return watch.read()


def _build_pods() -> Iterator[dict[str, Any]]:
    """Yield pods that held a device of the fleet one after another, as a cluster remembers them."""
    devices = SyntheticFleet(GPUS).scrape(END)["device"].to_pylist()
    first = END.replace(tzinfo=None) - timedelta(days=POD_DAYS)
    for number in range(PODS):
        place = number % GPUS
        start = first + (timedelta(days=POD_DAYS) - POD_LIFE) * (number / PODS)
        yield {
            "cluster": "bench",
            "uid": f"pod-{number}",
            "namespace": f"team-{number % 9}",
            "pod": f"old-{number}-0",
            "node": f"node-{place // 8:05d}",
            "phase": "Succeeded",
            "workload_kind": "Job",
            "workload": f"old-{number}",
            "workload_uid": f"job-{number}",
            "gpu_resource": "nvidia.com/gpu",
            "gpu_request": 1.0,
            "created_at": start,
            "scheduled_at": start,
            "started_at": start,
            "finished_at": start + POD_LIFE,
            "first_seen": start,
            "last_seen": start + POD_LIFE,
            "devices": json.dumps([{"device": devices[place], "share": 1.0}]),
        }
