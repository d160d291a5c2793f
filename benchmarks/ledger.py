"""Say who held what, post the ledger and find idle workloads in 30 days of rollups."""

import time
from collections.abc import Callable
from datetime import timedelta
from typing import TypeVar

from analyzers.idle.analyzer import IdleAnalyzer
from benchmarks.month import build_month, read_peak_gib
from benchmarks.result import Result
from fallow.window import Window
from warehouse import audits
from warehouse.allocation import write_allocations
from warehouse.lake import Warehouse
from warehouse.ledger import write_ledger

T = TypeVar("T")
LATE = timedelta(hours=2)
"""What the service posts at each turn."""


def run(small: bool) -> list[Result]:
    """Measure 30 days of 10,000 GPUs (90 M five-minute rows); small: 2 days of 200."""
    gpus, days = (200, 2) if small else (10_000, 30)
    with build_month(gpus, days) as (warehouse, window):
        of = f"{days} d of {gpus} GPUs"
        before = read_peak_gib()
        claims, allocated = _measure_time(lambda: write_allocations(warehouse, window))
        rows, ledger_s = _measure_time(lambda: write_ledger(warehouse, window))
        idle_findings, verdict_s = _measure_time(
            lambda: IdleAnalyzer(warehouse.settings.idle).find(warehouse, window)
        )
        peak = read_peak_gib()
        failures, audited = _measure_time(lambda: audits.run_audits(warehouse, window))
        audit_peak = read_peak_gib()
        late = _measure_late(warehouse, Window(window.end - LATE, window.end))
    if failures:
        raise RuntimeError(f"the ledger does not add up: {failures[0]}")
    return [
        Result(name=f"say who held what, {of}", value=allocated, unit="s", note=f"{claims} rows"),
        Result(
            name=f"post the ledger, {of}", value=ledger_s, unit="s", reach=10, note=f"{rows} rows"
        ),
        Result(
            name=f"idle workloads, {of}",
            value=verdict_s,
            unit="s",
            note=f"{len(idle_findings)} findings",
        ),
        Result(
            name="ledger and idle together",
            value=allocated + ledger_s + verdict_s,
            unit="s",
            reach=30,
            note="who held what, posting, idle",
        ),
        Result(
            name="ledger and idle: peak memory",
            value=peak,
            unit="GiB",
            reach=3,
            note=f"{before:.2f} GiB before",
        ),
        Result(
            name=f"audit the ledger, {of}",
            value=audited,
            unit="s",
            note=f"peak {audit_peak:.2f} GiB",
        ),
        Result(name=f"account the last 2 h of {gpus} GPUs", value=late, unit="s", note="best of 3"),
    ]


def _measure_late(warehouse: Warehouse, window: Window) -> float:
    """Return the seconds of one turn of the service: allocate, post, audit."""

    def turn() -> None:
        write_allocations(warehouse, window)
        write_ledger(warehouse, window)
        audits.run_audits(warehouse, window)

    return min(_measure_time(turn)[1] for _ in range(3))


def _measure_time(work: Callable[[], T]) -> tuple[T, float]:
    began = time.perf_counter()
    result = work()
    return result, time.perf_counter() - began
