"""How far jobs are, from a real Prometheus to a finding: by common name, setting and annotation."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest

from collectors.prometheus.collector import PrometheusCollector
from fallow.settings import load
from fallow.window import Window
from tests.servers import prometheus as server

pytestmark = pytest.mark.xdist_group("prometheus-progress")
START = datetime(2026, 11, 1, tzinfo=UTC)
END = START + timedelta(hours=1)
STILL = 40
"""Minute from which the job's step stands still."""
Rows = list[dict[str, Any]]
TABLES = ("progress_sample", "rejection")


def history() -> str:
    """Return an hour of a job of two GPUs, scraped every 30 s."""
    made = server.History()
    ts = np.arange(START.timestamp() + 3, END.timestamp(), 30)
    steps = np.minimum((ts - START.timestamp()) // 60, STILL)
    for rank in range(2):
        pod = {"namespace": "ml", "pod": f"train-{rank}"}
        gpu = {"gpu": "0", "UUID": f"GPU-{rank}", "Hostname": "n0", "modelName": "NVIDIA L4"}
        made.add("DCGM_FI_DEV_GPU_UTIL", {**gpu, **pod, "container": "main"}, ts, 100.0)
        named = {**pod, "uid": f"u{rank}", "annotation_fallow_dev_progress_metric": "my_epochs"}
        made.add("kube_pod_annotations", named, ts, 1.0)
        made.add("my_epochs", pod, ts, ts // 600)
        made.add("my_loss", pod, ts, 1.0)
    made.add("train_global_step", {"namespace": "ml", "pod": "train-0"}, ts, steps)
    made.add("site_steps", {"namespace": "ml", "pod": "train-1"}, ts, steps)
    made.add("train_global_step", {"namespace": "ml", "pod": "no-gpu"}, ts, steps)
    for name in ("one-host", "two-hosts"):
        gpu = {"gpu": "0", "UUID": f"GPU-{name}", "Hostname": "n1", "modelName": "NVIDIA L4"}
        named = {"namespace": "ml", "pod": name}
        made.add("DCGM_FI_DEV_GPU_UTIL", {**gpu, **named, "container": "main"}, ts, 100.0)
        made.add("train_global_step", {**named, "instance": "10.0.0.2:9400"}, ts, steps)
        made.add("train_global_step", {**named, "instance": "10.0.0.2:9401"}, ts, steps)
    other = {"namespace": "ml", "pod": "two-hosts", "instance": "10.9.9.9:9400"}
    made.add("train_global_step", other, ts[:80], ts[:80])
    return made.text()


@pytest.fixture(scope="module")
def all_rows(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rows]:
    data = server.blocks(history(), tmp_path_factory.mktemp("progress") / "data")
    with server.serving(data) as url:
        flags = {"prometheus.url": url, "prometheus.progress_metrics": ["site_steps"]}
        settings = load(environ={}, flags=flags).settings.prometheus
        collector = PrometheusCollector(settings, "c", lambda: END + timedelta(hours=1))
        found = [b for b in collector.collect(Window(START, END)) if b.table in TABLES]
        assert collector.failure is None
        yield [row for batch in found for row in batch.rows.to_pylist()]


@pytest.fixture(scope="module")
def rows(all_rows: Rows) -> Rows:
    return [row for row in all_rows if "metric" in row and "host" not in row["pod"]]


def test_a_pod_that_two_hosts_name_has_no_progress_meanwhile_and_is_listed(all_rows: Rows) -> None:
    """With honor_labels a target names any pod, and hid that the training of another stands."""
    values: dict[str, dict[datetime, float]] = {"one-host": {}, "two-hosts": {}}
    for row in all_rows:
        if row.get("pod") in values:
            values[row["pod"]][row["ts"]] = row["value"]
    assert max(values["one-host"].values()) == 2 * STILL, "a pod's targets are summed"
    both_until = START.replace(tzinfo=None) + timedelta(minutes=40)
    alone = {at: value for at, value in values["one-host"].items() if at > both_until}
    assert {at for at in values["two-hosts"] if at <= both_until} == set()
    assert values["two-hosts"].items() <= alone.items()
    assert values["two-hosts"]
    [refused] = [row for row in all_rows if "reason" in row]
    assert (refused["kind"], refused["namespace"], refused["name"]) == (
        "progress_sample",
        "ml",
        "two-hosts",
    )


def test_common_names_settings_and_annotations_are_read_of_pods_that_hold_gpus(rows: Rows) -> None:
    assert {(r["pod"], r["metric"]) for r in rows} == {
        ("train-0", "train_global_step"),
        ("train-1", "site_steps"),
        ("train-0", "my_epochs"),
        ("train-1", "my_epochs"),
    }
    assert {r["interval_s"] for r in rows} == {60.0}


def test_a_row_is_dated_by_when_its_value_was_the_last_one(rows: Rows) -> None:
    steps = {r["ts"]: r["value"] for r in rows if r["metric"] == "train_global_step"}
    begin = START.replace(tzinfo=None)
    for minute in (5, 20, STILL - 1):
        # At 5:00 the last scrape is that of 4:33, at step 4.
        assert steps[begin + timedelta(minutes=minute)] == minute - 1
    still = [ts for ts, value in steps.items() if value == STILL]
    assert min(still) == begin + timedelta(minutes=STILL + 1)
    assert len(still) == 60 - STILL
