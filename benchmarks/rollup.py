"""Roll a day of raw samples up, refresh one late bucket, and run the heavy queries of rollups.

A question about whole hours is asked of the hourly rollups that the product keeps, as its pages and
analyzers ask; its five-minute rollups give the same answer and are timed beside it.
"""

import math
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa

from benchmarks.fleet import SyntheticFleet, build_scrapes
from benchmarks.result import Result
from benchmarks.stopwatch import Stopwatch
from fallow.settings import load
from fallow.tables import Batch
from warehouse.lake import Warehouse
from warehouse.owner_hours import reduce_hours
from warehouse.rollup import roll_up

START = datetime(2026, 11, 1)  # noqa: DTZ001
NOW = datetime(2026, 11, 20, tzinfo=UTC)
ROLLED_FROM = datetime(2026, 10, 1)  # noqa: DTZ001
MEANS = """
SELECT namespace, sum(gpu_util_pct_mean::DOUBLE * gpu_util_pct_n) / sum(gpu_util_pct_n) AS mean
FROM rollup_1h WHERE bucket >= $a AND bucket < $b GROUP BY namespace ORDER BY namespace
"""
FINE_MEANS = MEANS.replace("rollup_1h", "rollup_5m")
IDLE = """
SELECT cluster, device, sum(idle_s) AS idle_s FROM rollup_1h
WHERE bucket >= $a AND bucket < $b GROUP BY ALL
HAVING max(act_max) <= 0.05 + 1e-6 AND sum(conflict_s + blind_s) = 0 AND sum(idle_s) >= 0.9 * 7200
ORDER BY cluster, device
"""
FINE_IDLE = IDLE.replace("rollup_1h", "rollup_5m")
PART = "FROM rollup_5m WHERE bucket >= $a AND bucket < $b"
WORST = 1e-7
"""Relative difference of the means of hours, whose columns are single precision."""


def run(small: bool) -> list[Result]:
    """Measure at 10,000 GPUs, 24 h of raw at 60 s and 30 days at 5 minutes; small: a hundredth."""
    gpus, hours, days = (400, 3, 3) if small else (10_000, 24, 30)
    with tempfile.TemporaryDirectory() as home:
        settings = load(environ={}, flags={"home": Path(home), "cluster": "bench"}).settings
        with Warehouse.open(settings, write=True, clock=lambda: NOW) as warehouse:
            return [
                *_measure_rolling(warehouse, gpus, hours),
                *_query_rollups(warehouse, gpus, days),
            ]


def _measure_rolling(warehouse: Warehouse, gpus: int, hours: int) -> list[Result]:
    fleet = SyntheticFleet(gpus)
    for hour in range(hours):
        start = START + timedelta(hours=hour)
        rows = build_scrapes(fleet, start, 60, 60.0)
        warehouse.ingest([Batch("sample", part) for part in rows])
    watch = Stopwatch()
    roll_up(warehouse)
    lap = watch.read()
    late = START + timedelta(hours=1, seconds=31)
    device = warehouse.query("SELECT min(device) AS d FROM device")["d"][0].as_py()
    times = []
    for second in range(5):
        row = Batch.of(
            "sample",
            {
                "cluster": ["bench"],
                "ts": [late + timedelta(seconds=second)],
                "device": [device],
                "interval_s": [60.0],
                "gpu_util_pct": [1.0],
            },
        )
        warehouse.ingest([row])
        watch = Stopwatch()
        roll_up(warehouse)
        times.append(watch.read())
    count = gpus * hours * 60
    return [
        Result(
            name=f"roll up {hours} h of {gpus} GPUs ({count / 1e6:.3g} M samples)",
            value=lap.wall_s,
            unit="s",
            cpu_s=lap.cpu_s,
            reach=15,
        ),
        Result(
            name="refresh one late 5-minute bucket",
            value=min(times).wall_s * 1e3,
            unit="ms",
            reach=150,
            note=f"{min(late.cpu_s for late in times) * 1e3:.0f} ms of CPU, with the bucket it "
            "reaches, their hour and the devices",
        ),
    ]


def _query_rollups(warehouse: Warehouse, gpus: int, days: int) -> list[Result]:
    sql = (Path(__file__).parent / "rollup.sql").read_text(encoding="utf-8")
    for day in range(days):
        with warehouse.transaction() as cursor:
            cursor.execute(sql, {"devices": gpus, "buckets": 288, "first": day * 288})
        start = ROLLED_FROM + timedelta(days=day)
        quarters = [start + timedelta(hours=hour) for hour in (0, 6, 12, 18)]
        hours = [
            reduce_hours(warehouse.query(PART, {"a": q, "b": q + timedelta(hours=6)}), threads=2)
            for q in quarters
        ]
        warehouse.replace("rollup_1h", pa.concat_tables(hours), "false")
    end = ROLLED_FROM + timedelta(days=days)
    month = {"a": ROLLED_FROM, "b": end}
    two_hours = {"a": end - timedelta(hours=2), "b": end}
    mean_s = _find_best(lambda: warehouse.query(MEANS, month))
    fine_s = _find_best(lambda: warehouse.query(FINE_MEANS, month))
    _compare_means(warehouse, month)
    idle_s = _find_best(lambda: warehouse.query(IDLE, two_hours))
    fine_idle_s = _find_best(lambda: warehouse.query(FINE_IDLE, two_hours))
    if warehouse.query(IDLE, two_hours) != warehouse.query(FINE_IDLE, two_hours):
        raise RuntimeError("the idle devices of hours are not those of the five-minute rows")
    rows_text = f"{gpus * days * 288 / 1e6:.3g} M five-minute rows"
    return [
        Result(
            name=f"mean utilisation per namespace, {days} d, of hours ({rows_text})",
            value=mean_s,
            unit="s",
            reach=0.25,
            note=f"of the five-minute rows {fine_s:.2f} s",
        ),
        Result(
            name="idle over 2 h, whole fleet, of hours",
            value=idle_s * 1e3,
            unit="ms",
            reach=15,
            note=f"of the five-minute rows {fine_idle_s * 1e3:.1f} ms",
        ),
    ]


def _compare_means(warehouse: Warehouse, span: dict[str, datetime]) -> None:
    """Refuse to time hours whose means are not those of the five-minute rows."""
    hours, buckets = (warehouse.query(sql, span).to_pydict() for sql in (MEANS, FINE_MEANS))
    pairs = zip(hours["mean"], buckets["mean"], strict=True)
    if hours["namespace"] != buckets["namespace"] or not all(
        math.isclose(of_hour, of_bucket, rel_tol=WORST) for of_hour, of_bucket in pairs
    ):
        raise RuntimeError("the means of hours are not those of the five-minute rows")


def _find_best(question: Callable[[], object], times: int = 5) -> float:
    best = float("inf")
    for _ in range(times):
        began = time.perf_counter()
        question()
        best = min(best, time.perf_counter() - began)
    return best
