"""Two replicas of one Prometheus, their series side by side: nothing counts twice."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest

from collectors.prometheus.collector import PrometheusCollector
from collectors.prometheus.latest import read_latest
from fallow.settings import load
from fallow.window import Window
from tests.servers import prometheus as server

pytestmark = pytest.mark.xdist_group("prometheus-replicas")
START = datetime(2026, 11, 1, tzinfo=UTC)
END = START + timedelta(hours=3)
POD = {"namespace": "ml", "pod": "chat-0"}
LABEL = "prometheus_replica"


def history(copies: int) -> str:
    """Return three hours of a server on one GPU, as so many replicas scraped it."""
    made = server.History()
    for copy in range(copies):
        ts = np.arange(START.timestamp() + 3 + 7 * copy, END.timestamp(), 30)
        result = {LABEL: f"prometheus-{copy}"} if copies > 1 else {}
        gpu = {"gpu": "0", "UUID": "GPU-0", "Hostname": "n0", "modelName": "NVIDIA L4", **POD}
        made.add("DCGM_FI_DEV_GPU_UTIL", {**result, **gpu, "container": "main"}, ts, 50.0)
        seconds = ts - ts[0]
        for container, cores in (("main", 2.0), ("istio-proxy", 0.5)):
            key = {**result, **POD, "container": container, "id": f"/kubepods/{container}"}
            made.add("container_cpu_usage_seconds_total", key, ts, seconds * cores)
            made.add("container_memory_working_set_bytes", key, ts, 2.0**30)
            made.add("container_fs_reads_bytes_total", {**key, "device": "sda"}, ts, seconds * 100)
        for interface in ("eth0", "net1"):
            key = {**result, **POD, "interface": interface}
            made.add("container_network_receive_bytes_total", key, ts, seconds * 1000)
        for engine in "01":
            key = {**result, **POD, "engine": engine}
            made.add("vllm:request_success_total", key, ts, seconds)
            made.add("vllm:e2e_request_latency_seconds_sum", key, ts, seconds * 0.6)
            made.add("vllm:e2e_request_latency_seconds_count", key, ts, seconds)
            for bound in ("1.0", "+Inf"):
                name = "vllm:e2e_request_latency_seconds_bucket"
                made.add(name, {**key, "le": bound}, ts, seconds)
    return made.text()


@pytest.fixture(scope="module", params=[1, 2], ids=["one", "two replicas"])
def rows(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, list[dict[str, Any]]]]:
    data = server.blocks(history(request.param), tmp_path_factory.mktemp("replicas") / "data")
    with server.serving(data) as url:
        settings = load(environ={}, flags={"prometheus.url": url}).settings.prometheus
        collector = PrometheusCollector(settings, "c", lambda: END + timedelta(hours=1))
        found: dict[str, list[dict[str, Any]]] = {}
        batches = [*collector.collect(Window(START, END))]
        now = [*read_latest(settings, "c", [("ml", "chat-0")], END - timedelta(minutes=1))]
        for batch in [*batches, *now]:
            found.setdefault(batch.table, []).extend(batch.rows.to_pylist())
        yield found


def test_hosts_work_is_counted_once(rows: dict[str, list[dict[str, Any]]]) -> None:
    whole = [row for row in rows["pod_sample"] if row["ts"] > START.replace(tzinfo=None)]
    assert {row["interval_s"] for row in whole} == {300.0, 120.0}  # the grid, and the last moment
    for row in whole:
        assert row["cpu_cores"] == pytest.approx(2.5, rel=0.03)
        assert row["sidecar_cores"] == pytest.approx(0.5, rel=0.03)
        assert row["memory_bytes"] == 2 * 2**30
        assert row["fs_read_bps"] == pytest.approx(200, rel=0.03)
        assert row["net_rx_bps"] == pytest.approx(2000, rel=0.03)
        assert row["requests_per_s"] == pytest.approx(2, rel=0.03)


def test_requests_are_counted_once(rows: dict[str, list[dict[str, Any]]]) -> None:
    row = rows["latency_sample"][1]
    assert row["count"] == pytest.approx(7200, rel=0.01)
    assert row["total_s"] == pytest.approx(7200 * 0.6, rel=0.01)
