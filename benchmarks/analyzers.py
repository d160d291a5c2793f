"""Every analyzer over 30 days of a fleet's rollups, alone and all together."""

from typing import Any

from benchmarks.month import open_month, read_peak_gib
from benchmarks.result import Result
from benchmarks.stopwatch import Stopwatch
from fallow.errors import FallowError
from fallow.window import Window
from runtime.operations.acting import plans
from runtime.operations.analysis import analyzer_runs
from warehouse.lake import Warehouse

REACH_S, TURN_S = 20, 6
REACH_GIB = 4


def run(small: bool) -> list[Result]:
    """Measure 30 days of 10,000 GPUs, rolled up and in the ledger; small: 2 days of 200."""
    gpus, days = (200, 2) if small else (10_000, 30)
    with open_month(gpus, days) as (warehouse, window):
        before = read_peak_gib()
        each = [
            _measure_alone(warehouse, window, name)
            for name in analyzer_runs.load_analyzers(warehouse.settings)
        ]
        alone = read_peak_gib()
        watch = Stopwatch()
        report = analyzer_runs.run_analyzers(
            warehouse,
            window,
            analyzer_runs.load_analyzers(warehouse.settings),
            strict=False,
            at_once=analyzer_runs.PARALLEL_ANALYZERS,
        )
        lap = watch.read()
        peak = read_peak_gib()
        turn = _measure_turn(warehouse, window)
    about = f"{days} d of {gpus} GPUs"
    saved = report.waterfall.saved()
    return [
        *each,
        turn,
        Result(
            name=f"all analyzers and the waterfall, {about}",
            value=lap.wall_s,
            unit="s",
            cpu_s=lap.cpu_s,
            reach=REACH_S,
            note=f"{len(report.findings)} findings, {len(report.waterfall.steps)} steps over "
            f"{report.waterfall.cells.num_rows} cells; "
            f"{saved.gpu_hours:,.0f} of {report.waterfall.bill.gpu_hours:,.0f} GPU-hours",
        ),
        Result(
            name="all analyzers: peak memory",
            value=peak,
            unit="GiB",
            reach=REACH_GIB,
            note=f"{before:.2f} GiB before, {alone:.2f} GiB after each alone",
        ),
    ]


def _measure_alone(warehouse: Warehouse, window: Window, name: str) -> Result:
    analyzer: Any = analyzer_runs.load_analyzers(warehouse.settings, [name])[name]
    watch = Stopwatch()
    try:
        outcome = f"{len([*analyzer.find(warehouse, window)])} findings"
    except FallowError as error:
        outcome = f"withheld: {error.message}"
    lap = watch.read()
    return Result(
        name=f"analyzer {name}",
        value=lap.wall_s,
        unit="s",
        cpu_s=lap.cpu_s,
        note=f"{outcome}; {read_peak_gib():.2f} GiB so far",
    )


def _measure_turn(warehouse: Warehouse, window: Window) -> Result:
    """Measure what an actor judges at each turn: the cases of every analyzer, at the last time."""
    watch = Stopwatch()
    cases, _ = plans.gather_cases(
        warehouse, warehouse.settings, at=window.end, cluster=warehouse.settings.cluster
    )
    lap = watch.read()
    return Result(
        name="the cases of one turn (`fallow plan`)",
        value=lap.wall_s,
        unit="s",
        cpu_s=lap.cpu_s,
        reach=TURN_S,
        note=f"{len(cases)} cases",
    )
