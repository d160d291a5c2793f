"""What `fallow import` reads is all in the ledger, held or not, whatever files it came in."""

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import settings as configure
from hypothesis import strategies as st

from collectors.exposition_file import import_exposition
from collectors.samples_file import import_samples
from fallow.settings import Settings
from fallow.tables import Batch
from runtime.operations.ingestion.import_stores import OpenStore
from runtime.operations.ingestion.imports import Importer
from warehouse.lake import Warehouse

pytestmark = pytest.mark.slow

NOW = datetime(2026, 11, 20, tzinfo=UTC)
STEP = timedelta(minutes=5)
COLUMNS = {"workload": "job", "ts": "time", "device": "gpu", "gpu_util_pct": "util"}
ROWS = 36
"""Three hours, in steps."""
FIRST = NOW - ROWS * STEP
LATE_JOB = range(13, 27)
"""The steps in which the third GPU is held."""
Write = Callable[[Path, range], Iterator[Batch]]


def test_devices_that_nobody_holds_are_free_hours(settings: Settings, tmp_path: Path) -> None:
    path = tmp_path / "day.csv"
    first = NOW - timedelta(days=1)
    lines = [
        f"{'' if gpu >= 7 else f'job-{gpu}'},{(first + k * STEP).isoformat()},GPU-{gpu},"
        f"{0 if gpu >= 7 else 90}"
        for gpu in range(11)
        for k in range(288)
    ]
    path.write_text("\n".join(["job,time,gpu,util", *lines]) + "\n")
    with Warehouse.open(settings, write=True, clock=lambda: NOW) as warehouse:
        batches = import_samples(path, COLUMNS, STEP.total_seconds(), "test")
        Importer(settings, NOW).import_into(OpenStore(warehouse), batches)
        rows = warehouse.query("SELECT state, sum(gpu_seconds) / 3600 AS h FROM ledger GROUP BY 1")
    assert {r["state"]: r["h"] for r in rows.to_pylist()} == {"productive": 168, "free": 96}


def _list_rows(steps: range) -> Iterator[tuple[str, int, int, int]]:
    """Yield the owner, step, GPU and utilization of each row of a file."""
    for k in steps:
        yield "busy", k, 0, 90
        yield "lazy", k, 1, 0
        late = k in LATE_JOB
        yield ("late" if late else ""), k, 2, (90 if late else 0)


def _write_samples(folder: Path, steps: range) -> Iterator[Batch]:
    path = folder / f"{steps.start}.csv"
    lines = [f"{o},{(FIRST + k * STEP).isoformat()},G{g},{u}" for o, k, g, u in _list_rows(steps)]
    path.write_text("\n".join(["job,time,gpu,util", *lines]) + "\n")
    return import_samples(path, COLUMNS, STEP.total_seconds(), "test")


def _write_exposition(folder: Path, steps: range) -> Iterator[Batch]:
    path = folder / f"{steps.start}.prom"
    lines = [
        f'DCGM_FI_DEV_GPU_UTIL{{UUID="G{gpu}",namespace="{owner and "ml"}",pod="{owner}"}} {value}'
        f" {round((FIRST + k * STEP).timestamp() * 1000)}"
        for owner, k, gpu, value in _list_rows(steps)
    ]
    path.write_text("\n".join(lines) + "\n")
    return import_exposition(path, "test", NOW, STEP.total_seconds())


def _account(write: Write, files: Sequence[range]) -> dict[str, float]:
    """Import each file by itself, in this order, and return the hours by owner and state."""
    with TemporaryDirectory() as folder:
        settings = Settings(cluster="test", home=Path(folder) / "home")
        for steps in files:
            Importer(settings, NOW).import_batches(write(Path(folder), steps))
        with Warehouse.open(settings) as warehouse:
            rows = warehouse.query(
                "SELECT coalesce(workload, '') || ' ' || state AS what,"
                " round(sum(gpu_seconds) / 3600, 6) AS h FROM ledger GROUP BY 1"
            )
    return {r["what"]: r["h"] for r in rows.to_pylist()}


BY_HAND = {"busy productive": 3.0, "lazy idle": 3.0, "late productive": 1.166667, " free": 1.833333}
"""36 steps of 5 minutes; the late job has 14 of them, and nobody has the other 22."""
WRITERS = pytest.mark.parametrize("write", [_write_samples, _write_exposition])


@WRITERS
def test_the_last_file_may_come_first(write: Write) -> None:
    assert _account(write, [range(21, ROWS), range(13), range(13, 21)]) == BY_HAND


@pytest.mark.long
@WRITERS
@configure(max_examples=4, deadline=None)
@given(st.sets(st.integers(1, ROWS - 1), max_size=2), st.data())
def test_files_say_the_same_in_any_cut_and_order(
    write: Write, cuts: set[int], data: st.DataObject
) -> None:
    files = [range(a, b) for a, b in pairwise([0, *sorted(cuts), ROWS])]
    assert _account(write, data.draw(st.permutations(files))) == BY_HAND
