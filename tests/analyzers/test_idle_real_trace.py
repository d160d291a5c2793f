"""The plain rule on 22.8 hours of 80 real GPUs: 415 idle stretches.

From first reading to last they take 456.79 GPU-hours; for 445.68 of them a reading speaks,
which is what the findings claim: of silence nothing is known.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from analyzers.idle.analyzer import IdleAnalyzer
from fallow.settings.idle import IdleSettings
from fallow.tables import Batch
from fallow.window import Window

Memory = Any

PLAIN = IdleSettings(
    threshold=0.01,
    exit_threshold=0.01,
    exit_samples=1,
    min_duration=timedelta(minutes=30),
    max_gap=timedelta(seconds=171),
)


@pytest.mark.real_data
def test_the_real_trace_has_the_known_idle_stretches(
    views: Memory, shared_data: Callable[[str], Path]
) -> None:
    trace = pl.read_parquet(shared_data("gentd26/gpu_dev_pods_0-7.parquet"))
    pods = trace["container_ip"]
    sample = {
        "cluster": ["gentd26"] * trace.height,
        "ts": pl.from_epoch(trace["ts"], "s").cast(pl.Datetime("us")).to_arrow(),
        "device": pods.to_list(),
        "interval_s": [57.0] * trace.height,
        "gpu_util_pct": trace["gpu_duty_cycle_pct"].to_arrow(),
        "mem_used_bytes": trace["gpu_memory_used_bytes"].to_arrow(),
    }
    views.put(Batch.of("sample", sample))
    seconds = trace["ts"].to_list()
    first, last = (datetime.fromtimestamp(at(seconds), tz=UTC) for at in (min, max))
    day = timedelta(days=1)
    begin, end = first.replace(tzinfo=None), last.replace(tzinfo=None) + timedelta(minutes=5)
    names = pods.unique().sort().to_list()
    views.rows(
        "allocation",
        [
            {
                "cluster": "gentd26", "device": n, "pod_uid": n, "start": begin,
                "end": end, "namespace": "x", "pod": n,
                "workload_kind": "Workload", "workload": n, "share": 1.0, "attribution": "exact",
            }
            for n in names
        ],
    )  # fmt: skip
    window = Window(first - day, last + day)
    found = IdleAnalyzer(PLAIN).find(views, window)
    assert len(found) == 415
    assert len({f.subject.workload for f in found}) == 75
    assert sum(f.window.seconds for f in found) / 3600 == pytest.approx(456.79, abs=0.01)
    assert sum(f.gpu_hours for f in found) == pytest.approx(445.68, abs=0.01)
    assert {f.evidence for f in found} == {"suspected"}
