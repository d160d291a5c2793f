"""Read the incidents of a large fleet in a week: samples of every minute, and failures as they are.

Another process fills the warehouse, so that the peak memory is that of what is measured.
"""

import multiprocessing
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

from analyzers.reliability.incidents.reading import read_incidents
from analyzers.reliability.incidents.records import Incident
from benchmarks.failures import START, PlantedFailure, encode_failures, plant_failures
from benchmarks.month import read_peak_gib
from benchmarks.result import Result
from benchmarks.stopwatch import Stopwatch
from fallow.settings import Settings, load
from fallow.window import Window
from warehouse.lake import Warehouse

REACH_S = 20
NEAR = timedelta(minutes=15)
FULL = (10_000, 7, 8)
SMALL = (640, 1, 2)
"""GPUs, days, nodes of a job; the small fleet has each kind of failure once."""


def run(small: bool) -> list[Result]:
    """Measure a week of 10,000 GPUs (101 M samples); small: a day of 640."""
    gpus, days, job_nodes = SMALL if small else FULL
    with TemporaryDirectory() as folder:
        spawned = multiprocessing.get_context("spawn").Process(
            target=fill, args=(Path(folder), gpus, days, job_nodes)
        )
        spawned.start()
        spawned.join()
        if spawned.exitcode:
            raise RuntimeError(f"the week could not be filled (exit {spawned.exitcode})")
        with open_week(Path(folder)) as warehouse:
            before = read_peak_gib()
            watch = Stopwatch()
            incidents = read_week(warehouse, days)
            took = watch.read().cpu_s
            peak = read_peak_gib()
    return [
        Result(
            name=f"incidents of {days} d of {gpus:,} GPUs",
            value=took,
            unit="CPU s",
            cpu_s=took,
            reach=REACH_S,
            note=f"{len(incidents)} incidents; peak {peak:.2f} GiB, {before:.2f} before",
        ),
        _compare(plant_failures(gpus, days, job_nodes), incidents),
        *_count_steps(incidents),
    ]


def fill(home: Path, gpus: int, days: int, job_nodes: int) -> None:
    """Write the fleet, and its samples day by day."""
    here = Path(__file__).parent
    inventory = (here / "incidents.sql").read_text(encoding="utf-8")
    samples = (here / "incidents_day.sql").read_text(encoding="utf-8")
    first = START.replace(tzinfo=None)
    failures = encode_failures(plant_failures(gpus, days, job_nodes))
    size = {"gpus": gpus, "days": days, "job_nodes": job_nodes, "failures": failures}
    with open_week(home) as warehouse:
        for day in range(days):
            with warehouse.transaction() as cursor:
                parts = inventory if day == 0 else inventory.partition(";")[0]
                for statement in cursor.extract_statements(parts + ";\n" + samples):
                    parameters = {**size, "day": first + timedelta(days=day)}
                    used = {n: v for n, v in parameters.items() if n in statement.named_parameters}
                    cursor.execute(statement, used)


def read_week(warehouse: Warehouse, days: int) -> list[Incident]:
    """Return the incidents of the days that `fill` wrote."""
    window = Window(START, START + timedelta(days=days))
    return read_incidents(warehouse, window, warehouse.settings.reliability, ())


def open_week(home: Path) -> Warehouse:
    """Return the warehouse of a folder, as on the eighth day."""
    settings: Settings = load(environ={}, flags={"home": home, "cluster": "bench"}).settings
    now = START + timedelta(days=8)
    return Warehouse.open(settings, write=True, clock=lambda: now)


def list_wrong(planted: Sequence[PlantedFailure], incidents: Sequence[Incident]) -> Iterator[str]:
    """Yield the failures that are not one incident with their cause and step, and what they are."""
    for failure in planted:
        theirs = [i for i in incidents if _is_of(i, failure)]
        verdicts = [(i.verdict.cause, i.verdict.step) for i in theirs]
        if verdicts != [(failure.kind.cause, failure.kind.step)]:
            yield f"{failure.kind.kind}: {', '.join('/'.join(v) for v in verdicts) or 'none'}"


def _is_of(incident: Incident, failure: PlantedFailure) -> bool:
    if incident.owners:
        return any(owner[3] == f"train-{failure.place}-{failure.turn}" for owner in incident.owners)
    near = abs(incident.start - failure.failed_at) <= NEAR
    return near and f"node-{failure.node}" in incident.nodes


def _compare(planted: Sequence[PlantedFailure], incidents: Sequence[Incident]) -> Result:
    wrong = list(list_wrong(planted, incidents))
    return Result(
        name="failures that are one incident with their cause and step",
        value=100 * (1 - len(wrong) / len(planted)),
        unit="%",
        reach=100,
        at_most=False,
        note=f"of {len(planted)}" + "".join(f"; {text}" for text in wrong),
    )


def _count_steps(incidents: Sequence[Incident]) -> Iterator[Result]:
    counts = Counter((i.verdict.step, i.verdict.cause) for i in incidents)
    steps = Counter(i.verdict.step for i in incidents)
    for step, count in steps.most_common():
        causes = [(cause, n) for (its_step, cause), n in counts.most_common() if its_step == step]
        note = ", ".join(f"{cause} {n}" for cause, n in causes)
        yield Result(name=f"step: {step}", value=count, unit="incidents", note=note)
