"""The ledger that slices write against that of one process: rows that differ."""

import shutil
import tempfile
import time
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl

from benchmarks import scale
from benchmarks.result import Result
from fallow.settings import load
from warehouse.lake import Warehouse
from warehouse.ledger import write_ledger
from warehouse.runners.local import LocalRunner
from warehouse.stages.audit_stage import audit_stage
from warehouse.stages.ledger_stage import write_ledger_stage

TABLES = ("signal", "ledger", "ledger_1h", "ledger_1d")
RELATIVE = 1e-9
"""Floats may differ so much: a sum's last digits depend on the order of its parts."""
DAY = timedelta(days=1)


def run(small: bool) -> list[Result]:
    """Compare 7 days of 10,000 GPUs, written by one process and by two workers; small: 2 of 200."""
    gpus, days = (200, 2) if small else (10_000, 7)
    with tempfile.TemporaryDirectory(prefix="fallow-equality-") as folder:
        whole, sliced = Path(folder, "whole"), Path(folder, "sliced")
        scale.run_apart(scale.fill_month, whole, gpus, days)
        shutil.copytree(whole, sliced)
        began = time.perf_counter()
        scale.run_apart(_write_whole, whole, days)
        middle = time.perf_counter()
        failures = scale.run_apart(_write_sliced, sliced, days)
        ended = time.perf_counter()
        compared, differing = scale.run_apart(partial(_compare, whole, sliced), days)
    note = f"of {compared:,} rows; {middle - began:.0f} s, by two workers {ended - middle:.0f} s"
    of = f"{days} d of {gpus} GPUs"
    return [
        Result(name=f"rows that differ, {of}", value=differing, unit="rows", reach=0, note=note),
        Result(name=f"audits of slices that fail, {of}", value=failures, unit="audits", reach=0),
    ]


def _write_whole(home: Path, days: int) -> None:
    with _open(home) as warehouse:
        write_ledger(warehouse, scale.get_window(days))


def _write_sliced(home: Path, days: int) -> int:
    runner = LocalRunner(2)
    with _open(home) as warehouse:
        window = scale.get_window(days)
        write_ledger_stage(warehouse, window, lambda _: runner)
        failures = audit_stage(warehouse, window, lambda _: runner, marked=True)
    runner.close()
    return len(failures)


def _compare(whole: Path, sliced: Path, days: int) -> tuple[int, int]:
    """Return how many rows were compared, and how many differ; a day at a time."""
    start = scale.get_window(days).start.astimezone(UTC).replace(tzinfo=None)
    compared = differing = 0
    with _open(whole) as ours, _open(sliced) as theirs:
        for table in TABLES:
            for day in range(-1, days):
                frames = [_read_day(wh, table, start + day * DAY) for wh in (ours, theirs)]
                compared += frames[0].height
                differing += _count_differing(*frames)
    return compared, differing


def _read_day(warehouse: Warehouse, table: str, day: datetime) -> pl.DataFrame:
    sql = f"FROM {table} WHERE bucket >= $since AND bucket < $until ORDER BY ALL"
    return pl.DataFrame(warehouse.query(sql, {"since": day, "until": day + DAY}))


def _count_differing(ours: pl.DataFrame, theirs: pl.DataFrame) -> int:
    if ours.height != theirs.height:
        return max(ours.height, theirs.height)
    differs = np.zeros(ours.height, dtype=bool)
    for name, kind in ours.schema.items():
        differs_here = ours[name].ne_missing(theirs[name])
        if kind.is_float():
            near = (ours[name] - theirs[name]).abs() <= RELATIVE * ours[name].abs()
            differs_here &= ~near.fill_null(value=False)
        differs |= differs_here.to_numpy()
    return int(differs.sum())


def _open(home: Path) -> Warehouse:
    settings = load(environ={}, flags={"home": home, "cluster": "bench"}).settings
    return Warehouse.open(settings, write=True, clock=lambda: scale.NOW)
