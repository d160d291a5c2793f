"""What servers and training loops tell of themselves: it adds up, never falls, changes nothing."""

import math
from datetime import UTC, datetime

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.exporters.service_rows import build_latencies, compute_steps
from simulator.models import DeviceAllocation, Holder
from simulator.work.behaviours import WorkPlan, build_script
from simulator.work.levels import (
    LAWS,
    LOST,
    PER_GPU,
    build_histograms,
    compute_pace,
    compute_throughput,
    count_latencies,
)

START = datetime(2026, 11, 16, 8, tzinfo=UTC).timestamp()
HOLDER = Holder("uid-0", "team-a", "pod-0", "main", "Deployment", "work", "a")


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**31), metric=st.sampled_from(sorted(LAWS)))
def test_counts_rise_with_time_and_with_the_bound(seed: int, metric: str) -> None:
    ran = build_script(WorkPlan("serving", seed), START)
    found = count_latencies(ran, START + 600.0 * np.arange(200.0), metric)
    assert found is not None
    counts, total = found
    assert (np.diff(counts, axis=0) >= 0).all()
    assert (np.diff(counts, axis=1) >= 0).all()
    assert (np.diff(total) >= 0).all()


def test_a_day_in_rows_is_what_the_counters_say_of_it() -> None:
    ran = build_script(WorkPlan("serving", 3), START)
    allocation = DeviceAllocation(HOLDER, (0,), START, START + 86_400 + 1800)
    halves = [START + 300.0 * np.arange(144.0 * n, 144.0 * (n + 1)) for n in (0, 1)]
    rows = [
        row
        for part in halves
        for batch in build_latencies(allocation, ran, part, "sim")
        for row in batch.rows.to_pylist()
        if row["metric"] == "ttft"
    ]
    assert len(rows) == 24
    (end,) = (h for h in build_histograms(ran, START + 86_400) if h.metric == "ttft")
    assert sum(r["count"] for r in rows) == end.counts[-1] > 0
    assert sum(r["counts"][-1] for r in rows) == end.counts[-1] - end.counts[-2]
    assert rows[0]["bounds"] == [float(b) for b in LAWS["ttft"].bounds]


@pytest.mark.parametrize("ranks", [2, 4, 16])
def test_throughput_per_gpu_falls_with_the_size(ranks: int) -> None:
    ran = build_script(WorkPlan("training", 5, ranks), START)
    result = compute_throughput(ran, np.array([START, START + 7200.0]))
    assert result is not None
    assert math.isnan(result[0])  # the image is pulled
    per_gpu = PER_GPU / (1 + LOST * math.log2(ranks))
    assert result[1] / ranks == pytest.approx(per_gpu, rel=1e-6)
    second = build_script(WorkPlan("training", 5, ranks, first_rank=1, pod_ranks=1), START)
    lead, other = compute_pace(ran, START + 7200.0), compute_pace(second, START + 7200.0)
    assert lead is not None
    assert lead.tokens_per_s == result[1]
    assert 0 < lead.allocated_bytes < lead.reserved_bytes
    assert other is not None
    assert other.tokens_per_s is None


def test_who_serves_trains_nothing_and_the_other_way_round() -> None:
    instants = START + 300.0 * np.arange(48.0)
    allocation = DeviceAllocation(HOLDER, (0,), START, math.inf)
    for behaviour, served, trained in (
        ("serving", 3, 0),
        ("training", 0, 1),
        ("day notebook", 0, 0),
    ):
        ran = build_script(WorkPlan(behaviour, 1), START)
        assert len(list(build_latencies(allocation, ran, instants, "sim"))) == served
        assert (compute_steps(allocation, ran, instants) is not None) == bool(trained)
