"""The ledger and its audits that slices write against those of one process: rows that differ."""

import shutil
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from benchmarks import scale
from benchmarks.result import Result
from fallow.settings import load
from warehouse.audit_results import audit_hours
from warehouse.lake import Warehouse
from warehouse.ledger import write_ledger
from warehouse.runners.local import LocalRunner
from warehouse.stages.audit_stage import audit_stage
from warehouse.stages.ledger_stage import write_ledger_stage

TABLES = ("signal", "ledger", "ledger_1h", "ledger_1d")
RELATIVE = 1e-9
"""Floats may differ so much: a sum's last digits depend on the order of its parts."""
DAY = timedelta(days=1)
WORKERS = 1, 2, 4


def run(small: bool) -> list[Result]:
    """Compare 7 days of 10,000 GPUs, written by one process and by workers; small: 2 of 200."""
    gpus, days = (200, 2) if small else (10_000, 7)
    of = f"{days} d of {gpus} GPUs"
    with tempfile.TemporaryDirectory(prefix="fallow-equality-") as folder:
        filled, whole = Path(folder, "filled"), Path(folder, "whole")
        scale.run_apart(scale.fill_month, filled, gpus, days)
        shutil.copytree(filled, whole)
        began = time.perf_counter()
        failures = scale.run_apart(_write_whole, whole, days)
        took = f"{time.perf_counter() - began:.0f} s by one process"
        results = [_count_failures(f"one process, {of}", failures)]
        for workers in WORKERS[1:2] if small else WORKERS:
            sliced = shutil.copytree(filled, Path(folder, "sliced"))
            began = time.perf_counter()
            failures = scale.run_apart(_write_sliced, sliced, days, workers)
            note = f"{took}, {time.perf_counter() - began:.0f} s by {workers} workers"
            compared, differing, example = scale.run_apart(_compare, whole, sliced, days)
            shutil.rmtree(sliced)
            note = f"of {compared:,} rows; {note}" + (f"; the first: {example}" if example else "")
            name = f"rows that differ by {workers} workers, {of}"
            results += [
                Result(name=name, value=differing, unit="rows", reach=0, note=note),
                _count_failures(f"{workers} workers, {of}", failures),
            ]
    return results


def _count_failures(of: str, failures: int) -> Result:
    return Result(name=f"audits that fail by {of}", value=failures, unit="audits", reach=0)


def _write_whole(home: Path, days: int) -> int:
    with _open(home) as warehouse:
        window = scale.get_window(days)
        write_ledger(warehouse, window)
        return len(audit_hours(warehouse, window, marked=True))


def _write_sliced(home: Path, days: int, workers: int) -> int:
    runner = LocalRunner(workers)
    with _open(home) as warehouse:
        window = scale.get_window(days)
        write_ledger_stage(warehouse, window, lambda _: runner)
        failures = audit_stage(warehouse, window, lambda _: runner, marked=True)
    runner.close()
    return len(failures)


def _compare(whole: Path, sliced: Path, days: int) -> tuple[int, int, str]:
    """Return how many rows were compared, how many differ, and the first; a day at a time."""
    start = scale.get_window(days).start.astimezone(UTC).replace(tzinfo=None)
    compared = differing = 0
    example = ""
    with _open(whole) as ours, _open(sliced) as theirs:
        for table in TABLES:
            for day in range(-1, days):
                a, b = (_read_day(wh, table, start + day * DAY) for wh in (ours, theirs))
                compared += a.height
                differs = _find_differing(a, b)
                differing += int(differs.sum())
                if differs.any() and not example:
                    example = f"{table}: {_show_first(a, b, differs)}"
    return compared, differing, example


def _read_day(warehouse: Warehouse, table: str, day: datetime) -> pl.DataFrame:
    sql = f"FROM {table} WHERE bucket >= $since AND bucket < $until ORDER BY ALL"
    return pl.DataFrame(warehouse.query(sql, {"since": day, "until": day + DAY}))


def _find_differing(ours: pl.DataFrame, theirs: pl.DataFrame) -> npt.NDArray[np.bool_]:
    """Return which rows differ; all of them where one table has more."""
    if ours.height != theirs.height:
        return np.ones(max(ours.height, theirs.height), dtype=bool)
    differs = np.zeros(ours.height, dtype=bool)
    for name, kind in ours.schema.items():
        differs_here = ours[name].ne_missing(theirs[name])
        if kind.is_float():
            near = (ours[name] - theirs[name]).abs() <= RELATIVE * ours[name].abs()
            differs_here &= ~near.fill_null(value=False)
        differs |= differs_here.to_numpy()
    return differs


def _show_first(
    ours: pl.DataFrame, theirs: pl.DataFrame, differs: npt.NDArray[np.bool_]
) -> dict[str, object]:
    """Return the key of the first row that differs, and both values of what differs in it."""
    if ours.height != theirs.height:
        return {"rows": (ours.height, theirs.height)}
    row = int(np.argmax(differs))
    a, b = ours.row(row, named=True), theirs.row(row, named=True)
    key = {name: str(a[name]) for name in ("bucket", "device") if name in a}
    return key | {name: (a[name], b[name]) for name in a if a[name] != b[name]}


def _open(home: Path) -> Warehouse:
    settings = load(environ={}, flags={"home": home, "cluster": "bench"}).settings
    return Warehouse.open(settings, write=True, clock=lambda: scale.NOW)
