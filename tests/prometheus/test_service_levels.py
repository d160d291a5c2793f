"""Latency histograms and training steps of a real server become rows; passes leave no hole."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from collectors.prometheus.collector import PrometheusCollector
from collectors.prometheus.latencies import _decode_counts, read_latency_metrics
from collectors.prometheus.steps import read_step_metrics as known_steps
from fallow.settings import load
from fallow.settings.service_levels import LatencyMetric
from fallow.window import Window
from tests.servers.prometheus import END, HOURS, START

pytestmark = pytest.mark.xdist_group("prometheus")
Rows = Mapping[str, list[dict[str, Any]]]


def of(rows: list[dict[str, Any]], pod: str) -> list[dict[str, Any]]:
    return [row for row in rows if row["pod"].startswith(pod)]


def test_a_histogram_is_a_row_per_hour_with_its_bounds(past_rows: Rows) -> None:
    rows = of(past_rows["latency_sample"], "fraud-scorer")
    assert len(rows) == HOURS
    assert {(r["metric"], r["source"], r["interval_s"]) for r in rows} == {
        ("e2e", "vllm:e2e_request_latency_seconds", 3600.0)
    }
    assert {tuple(r["bounds"]) for r in rows} == {(0.3, 0.5, 1.0, 5.0)}
    for row in rows[1:]:  # the first hour begins with the counter
        assert row["count"] == pytest.approx(3600, rel=0.01)
        assert row["counts"] == pytest.approx([720, 1080, 1440, 324, 36], rel=0.05, abs=3)
        assert sum(row["counts"]) == pytest.approx(row["count"])
        assert row["total_s"] == pytest.approx(2160, rel=0.01)


def test_a_restart_loses_no_hour_and_gains_none(past_rows: Rows) -> None:
    counts = [r["count"] for r in of(past_rows["latency_sample"], "infer-0")]
    assert len(counts) == HOURS
    assert min(counts) > 3300
    assert max(counts) < 3700


def test_units_and_labels_of_other_servers_are_told_by_their_table(past_rows: Rows) -> None:
    (knative, *_) = of(past_rows["latency_sample"], "bert-embed")[1:]
    assert (knative["namespace"], knative["bounds"]) == ("serving", [0.05])
    assert knative["counts"] == pytest.approx([1800, 1800], rel=0.01)
    assert knative["total_s"] == pytest.approx(216, rel=0.01)
    (triton, *_) = of(past_rows["latency_sample"], "infer-1")[1:]
    assert (triton["bounds"], triton["counts"]) == ([], [])
    assert triton["total_s"] / triton["count"] == pytest.approx(0.03)
    assert triton["count"] == pytest.approx(7200, rel=0.01)


def test_servers_that_hold_no_device_are_not_asked(past_rows: Rows) -> None:
    assert not of(past_rows["latency_sample"], "kube-proxy")


def test_a_training_loop_tells_its_pace_and_memory(past_rows: Rows) -> None:
    rows = past_rows["step_sample"]
    assert {r["pod"] for r in rows} == {"llm-pretrain-worker-0"}
    assert len(rows) == pytest.approx(HOURS * 12 - 9, abs=2)  # its node is silent for 46 minutes
    row = rows[100]
    assert row["job_work_per_s"] == 12_000
    assert row["work"] == "trainer_throughput_tokens_per_sec"
    assert row["work_per_s"] is None  # another unit: it never mixes with the first
    assert row["steps_per_s"] == pytest.approx(0.5, rel=0.02)
    assert row["reserved_bytes"] == 2 * row["allocated_bytes"] == 2**36


@pytest.mark.slow
def test_passes_a_minute_apart_leave_no_hole(prometheus_with_history: str) -> None:
    settings = load(environ={}, flags={"prometheus.url": prometheus_with_history}).settings
    now = [END - timedelta(hours=5, minutes=40) + timedelta(seconds=20)]
    collector = PrometheusCollector(settings.prometheus, "real", lambda: now[0])
    seen: dict[str, set[datetime]] = {}
    names: set[str] = set()
    begin = now[0]
    for _ in range(50):
        at = now[0] + timedelta(minutes=1)
        window, now[0] = Window(now[0], at), at
        for batch in collector.collect(window):
            if batch.table == "cursor":
                names |= set(batch.rows["source"].to_pylist())
            elif "ts" in batch.rows.schema.names:
                seen.setdefault(batch.table, set()).update(batch.rows["ts"].to_pylist())
        assert collector.failure is None
    scraped = [ts for ts in seen["sample"] if ts >= begin.replace(tzinfo=None)]
    assert len(scraped) == pytest.approx(2 * 25, abs=2)  # both nodes, every two minutes
    for table, every, count in (("pod_sample", 5, 9), ("step_sample", 5, 9)):
        instants = sorted(seen[table])
        apart = {later - before for before, later in pairwise(instants)}
        assert apart == {timedelta(minutes=every)}
        assert len(instants) >= count, table
    assert len(seen["latency_sample"]) == 1
    assert len(names) == 7  # telemetry, inventory and five on a grid: one cursor each


def test_a_sites_own_names_are_settings(prometheus_with_history: str) -> None:
    flags = {
        "prometheus.url": prometheus_with_history,
        "prometheus.latency_metrics": [
            {"name": "nv_inference_request_duration_us", "measure": "queue", "form": "mean",
             "scale": 1e-6, "count": "nv_inference_request_success"},
        ],
        "prometheus.step_metrics": [
            {"name": "train_samples_total", "column": "steps_per_s", "form": "counter",
             "scale": 0.1},
        ],
    }  # fmt: skip
    settings = load(environ={}, flags=flags).settings
    collector = PrometheusCollector(settings.prometheus, "real", lambda: END)
    rows: dict[str, list[dict[str, Any]]] = {}
    for batch in collector.collect(Window(START, START + timedelta(hours=3))):
        rows.setdefault(batch.table, []).extend(batch.rows.to_pylist())
    assert {r["metric"] for r in of(rows["latency_sample"], "infer-1")} == {"queue"}
    assert rows["step_sample"][9]["steps_per_s"] == pytest.approx(0.5, rel=0.02)


@pytest.mark.parametrize(
    ("shown", "counts"),
    [
        ({"1": [3.0], "2": [5.0], "+Inf": [6.0]}, [3, 2, 1]),
        ({"2": [5.0], "1": [5.2], "+Inf": [6.0]}, [5.2, 0, 0.8]),  # extrapolated apart
        ({"1": [7.0], "+Inf": [6.0]}, [6, 0]),
        ({"1": [np.nan], "+Inf": [6.0]}, [0, 6]),  # that bound's series is not there yet
        ({"1": [3.0], "+Inf": [np.nan]}, [np.nan, np.nan]),
        ({"1": [3.0]}, [np.nan]),  # without +Inf nobody knows how many there were
    ],
)
def test_counts_never_fall(shown: dict[str, list[float]], counts: list[float]) -> None:
    made = _decode_counts({bound: np.array(line) for bound, line in shown.items()})
    assert made[:, 0].tolist() == pytest.approx(counts, nan_ok=True)


def test_every_name_of_the_tables_is_legal_once() -> None:
    assert len({m.name for m in read_latency_metrics()}) == len(read_latency_metrics()) > 10
    assert len({(m.name, m.column) for m in known_steps()}) == len(known_steps())
    with pytest.raises(ValidationError, match="should match pattern"):
        LatencyMetric(name="a b", measure="e2e")
