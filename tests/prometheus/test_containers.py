"""Containers on a real Prometheus: what each uses, asks for, and whether it was killed."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest

from collectors.prometheus.collector import PrometheusCollector
from fallow.settings import load
from fallow.window import Window
from tests.servers import prometheus as server

pytestmark = pytest.mark.xdist_group("prometheus-containers")
START = datetime(2026, 11, 1, tzinfo=UTC)
END = START + timedelta(hours=3)
POD = {"namespace": "ml", "pod": "chat-0"}
GIB = 2**30


def history() -> str:
    """Return three hours of two containers; `main` takes 9 GiB for a minute in each half hour."""
    made = server.History()
    ts = np.arange(START.timestamp() + 3, END.timestamp(), 30)
    seconds = ts - ts[0]
    gpu = {"gpu": "0", "UUID": "GPU-0", "Hostname": "n0", "modelName": "NVIDIA L4", **POD}
    made.add("DCGM_FI_DEV_GPU_UTIL", {**gpu, "container": "main"}, ts, 50.0)
    kept = {**POD, "uid": "u-0"}
    made.add("kube_pod_info", {**kept, "node": "n0"}, ts, 1.0)
    made.add("kube_pod_status_phase", {**kept, "phase": "Running"}, ts, 1.0)
    bursts = np.where(seconds % 1800 < 60, 9.0, 3.0) * GIB
    memory = {"main": bursts, "side": np.full(len(ts), float(GIB))}
    for container, cores, reason in (("main", 2.0, "OOMKilled"), ("side", 0.5, "Error")):
        key = {**POD, "container": container, "id": f"/kubepods/{container}"}
        made.add("container_cpu_usage_seconds_total", key, ts, seconds * cores)
        made.add("container_memory_working_set_bytes", key, ts, memory[container])
        place = {**kept, "container": container}
        name = "kube_pod_container_status_last_terminated_reason"
        made.add(name, {**place, "reason": reason}, ts, 1.0)
        for resource, unit, amount in (("cpu", "core", 4.0), ("memory", "byte", 8.0 * GIB)):
            wanted = {**place, "resource": resource, "unit": unit}
            made.add("kube_pod_container_resource_requests", wanted, ts, amount)
    everything = {**POD, "container": "", "id": "/kubepods"}
    made.add("container_cpu_usage_seconds_total", everything, ts, seconds * 2.5)
    return made.text()


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, list[dict[str, Any]]]]:
    data = server.blocks(history(), tmp_path_factory.mktemp("containers") / "data")
    with server.serving(data) as url:
        settings = load(environ={}, flags={"prometheus.url": url}).settings.prometheus
        collector = PrometheusCollector(settings, "c", lambda: END + timedelta(hours=1))
        found: dict[str, list[dict[str, Any]]] = {}
        for batch in collector.collect(Window(START, END)):
            found.setdefault(batch.table, []).extend(batch.rows.to_pylist())
        yield found


def test_each_container_has_its_own_use(rows: dict[str, list[dict[str, Any]]]) -> None:
    first = START.replace(tzinfo=None)
    for container, cores in (("main", 2.0), ("side", 0.5)):
        mine = {r["ts"]: r for r in rows["container_sample"] if r["container"] == container}
        assert len(mine) == 36
        inside = [r["cpu_cores"] for ts, r in mine.items() if ts > first]
        assert inside == pytest.approx([cores] * len(inside), rel=0.01)
    peaks = {
        r["ts"] for r in rows["container_sample"]
        if r["container"] == "main" and r["memory_bytes"] == 9 * GIB
    }  # fmt: skip
    assert peaks == {first + n * timedelta(minutes=30) for n in range(6)}
    assert {r["container"] for r in rows["container_sample"]} == {"main", "side"}


def test_the_inventory_tells_requests_and_who_was_killed(
    rows: dict[str, list[dict[str, Any]]],
) -> None:
    result = {c["name"]: c for c in json.loads(rows["pod"][-1]["containers"])}
    wanted = {"cpu_milli": 4000, "memory_bytes": 8 * GIB}
    assert result == {
        "main": {"name": "main", **wanted, "oom_killed": True},
        "side": {"name": "side", **wanted},
    }
