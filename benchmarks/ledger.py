"""Say who held what, post the ledger and keep the idle rows of 30 days of rollups; audit them."""

from datetime import timedelta

from benchmarks.month import LEDGER, open_month, read_laps, read_peak_gib
from benchmarks.result import Result
from benchmarks.stopwatch import Stopwatch
from fallow.window import Window
from warehouse import audits
from warehouse.allocation import write_allocations
from warehouse.lake import Warehouse
from warehouse.ledger import write_ledger

LATE = timedelta(hours=2)
"""What the service posts at each turn."""
REACH_S = {LEDGER: 10.0}


def run(small: bool) -> list[Result]:
    """Measure 30 days of 10,000 GPUs (90 M five-minute rows); small: 2 days of 200."""
    gpus, days = (200, 2) if small else (10_000, 30)
    of = f"{days} d of {gpus} GPUs"
    with open_month(gpus, days) as (warehouse, window):
        laps = read_laps(warehouse.settings.home)
        watch = Stopwatch()
        failures = audits.run_audits(warehouse, window)
        audited, peak = watch.read(), read_peak_gib()
        late = min(_measure_turn(warehouse, Window(window.end - LATE, window.end)) for _ in "123")
    if failures:
        raise RuntimeError(f"the ledger does not add up: {failures[0]}")
    return [
        *(
            Result(
                name=f"{step}, {of}",
                value=lap.wall_s,
                unit="s",
                cpu_s=lap.cpu_s,
                reach=REACH_S.get(step),
                note="when the month was filled",
            )
            for step, lap in laps.items()
        ),
        Result(
            name=f"audit the ledger, {of}",
            value=audited.wall_s,
            unit="s",
            cpu_s=audited.cpu_s,
            note=f"peak {peak:.2f} GiB",
        ),
        Result(name=f"account the last 2 h of {gpus} GPUs", value=late, unit="s", note="best of 3"),
    ]


def _measure_turn(warehouse: Warehouse, window: Window) -> float:
    """Return the seconds of one turn of the service: allocate, post, audit."""
    watch = Stopwatch()
    write_allocations(warehouse, window)
    write_ledger(warehouse, window)
    audits.run_audits(warehouse, window)
    return watch.read().wall_s
