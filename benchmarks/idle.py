"""Find idle workloads in 30 days of five-minute rollups of 10,000 held GPUs."""

import hashlib
import resource
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from analyzers.idle import IdleAnalyzer
from benchmarks.result import Result
from fallow.settings import load
from fallow.tables import Batch
from fallow.window import Window
from warehouse.lake import Warehouse

START = datetime(2026, 10, 1, tzinfo=UTC)
NOW = datetime(2026, 11, 20, tzinfo=UTC)


def run(small: bool) -> list[Result]:
    """Measure 30 days of 10,000 GPUs (86 M rows); small: 3 days of 400."""
    gpus, days = (400, 3) if small else (10_000, 30)
    with tempfile.TemporaryDirectory() as home:
        settings = load(environ={}, flags={"home": Path(home), "cluster": "bench"}).settings
        with Warehouse.open(settings, write=True, clock=lambda: NOW) as warehouse:
            _fill(warehouse, gpus, days)
            window = Window(START, START + timedelta(days=days))
            before = _peak()
            began = time.perf_counter()
            found = IdleAnalyzer(settings.idle).find(warehouse, window)
            took = time.perf_counter() - began
    rows = gpus * days * 288
    return [
        Result(
            name=f"idle workloads, {days} d at 5 min ({rows / 1e6:.3g} M rows)",
            value=took,
            unit="s",
            reach=30,
            note=f"{len(found)} findings; the ledger of the same days counts in the 30 s",
        ),
        Result(
            name="idle workloads: peak memory",
            value=_peak() / 2**20,
            unit="GiB",
            reach=3,
            note=f"{before / 2**20:.2f} GiB after filling the warehouse",
        ),
    ]


def _fill(warehouse: Warehouse, gpus: int, days: int) -> None:
    sql = (Path(__file__).parent / "idle.sql").read_text(encoding="utf-8")
    for day in range(days):
        with warehouse.transaction() as cursor:
            cursor.execute(sql, {"devices": gpus, "buckets": 288, "first": day * 288})
    names = [f"GPU-{hashlib.md5(str(d).encode()).hexdigest()}" for d in range(gpus)]
    first, last = START.replace(tzinfo=None), START.replace(tzinfo=None) + timedelta(days=days)
    many = {"cluster": ["bench"] * gpus, "device": names}
    device = {
        **many,
        "node": [f"node-{d // 8}" for d in range(gpus)],
        "model": ["NVIDIA H100 80GB HBM3"] * gpus,
        "gpu_model": ["H100"] * gpus,
        "weight": [1.0] * gpus,
        "interval_s": [60.0] * gpus,
        "first_seen": [first] * gpus,
        "last_seen": [last] * gpus,
    }
    warehouse.ingest([Batch.of("device", device)])
    held = {
        **many,
        "pod_uid": [f"job-{d // 8}" for d in range(gpus)],
        "start": [first] * gpus,
        "end": [last] * gpus,
        "namespace": [f"team-{d // 64 % 40}" for d in range(gpus)],
        "pod": [f"job-{d // 8}-0" for d in range(gpus)],
        "workload_kind": ["Deployment"] * gpus,
        "workload": [f"job-{d // 8}" for d in range(gpus)],
        "share": [1.0] * gpus,
        "attribution": ["exact"] * gpus,
    }
    warehouse.replace("allocation", Batch.of("allocation", held).rows, "true", {})


def _peak() -> float:
    """Return the most memory this process has held, in KiB."""
    return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
