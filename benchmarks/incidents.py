"""Read the incidents of a large fleet in a week: samples of every minute, and failures as they are.

Another process fills the warehouse, so that the peak memory is that of what is measured.
"""

import multiprocessing
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

from analyzers.reliability.incidents.reading import read_incidents
from benchmarks.month import read_peak_gib
from benchmarks.result import Result
from fallow.settings import Settings, load
from fallow.window import Window
from warehouse.lake import Warehouse

START = datetime(2026, 10, 1, tzinfo=UTC)
REACH_S = 20


def run(small: bool) -> list[Result]:
    """Measure a week of 10,000 GPUs (101 M samples); small: a day of 320."""
    gpus, days = (320, 1) if small else (10_000, 7)
    with TemporaryDirectory() as folder:
        spawned = multiprocessing.get_context("spawn").Process(
            target=fill, args=(Path(folder), gpus, days)
        )
        spawned.start()
        spawned.join()
        if spawned.exitcode:
            raise RuntimeError(f"the week could not be filled (exit {spawned.exitcode})")
        with _open_warehouse(Path(folder)) as warehouse:
            before = read_peak_gib()
            window = Window(START, START + timedelta(days=days))
            began = time.process_time()
            incidents = read_incidents(warehouse, window, warehouse.settings.reliability, ())
            took = time.process_time() - began
            peak = read_peak_gib()
    hold_count = sum(incident.verdict.step == "hold" for incident in incidents)
    return [
        Result(
            name=f"incidents of {days} d of {gpus:,} GPUs",
            value=took,
            unit="CPU s",
            reach=REACH_S,
            note=f"{len(incidents)} incidents, {hold_count} hold; peak {peak:.2f} GiB, "
            f"{before:.2f} before",
        )
    ]


def fill(home: Path, gpus: int, days: int) -> None:
    """Write the fleet, and its samples day by day."""
    here, size = Path(__file__).parent, {"gpus": gpus, "days": days}
    inventory = (here / "incidents.sql").read_text(encoding="utf-8")
    samples = (here / "incidents_day.sql").read_text(encoding="utf-8")
    first = START.replace(tzinfo=None)
    with _open_warehouse(home) as warehouse:
        for day in range(days):
            with warehouse.transaction() as cursor:
                parts = inventory if day == 0 else inventory.partition(";")[0]
                for statement in cursor.extract_statements(parts + ";\n" + samples):
                    parameters = {**size, "day": first + timedelta(days=day)}
                    used = {n: v for n, v in parameters.items() if n in statement.named_parameters}
                    cursor.execute(statement, used)


def _open_warehouse(home: Path) -> Warehouse:
    settings: Settings = load(environ={}, flags={"home": home, "cluster": "bench"}).settings
    now = START + timedelta(days=8)
    return Warehouse.open(settings, write=True, clock=lambda: now)
