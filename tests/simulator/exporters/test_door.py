"""One server for a whole world's exporters, and what it says of hosts, notebooks and requests."""

import json
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from collectors.exporters import ExporterCollector
from collectors.jupyter import JupyterCollector
from fallow.errors import UsageError
from fallow.settings.collectors import ExporterSettings, JupyterSettings
from simulator.exporters.server import ExporterServer
from simulator.exporters.snapshot import WorldSnapshot
from tests.simulator.exporters import fleet
from tests.simulator.exporters.conftest import WINDOW, Scraped
from tests.simulator.exporters.host_rows import HostRows

Samples = dict[tuple[str, str], float]


def got(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as answer:
        text: str = answer.read().decode()
        return text


def values(text: str, label: str = "pod") -> Samples:
    return {
        (sample.name, sample.labels.get(label, "")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.labels.get("container", "x") != "" or "network" in sample.name
    }


def test_every_node_may_have_a_port_of_its_own() -> None:
    with ExporterServer(fleet.World(), node_port=0) as door:
        urls = [door.node_url(node) for node in (fleet.A, fleet.B, fleet.C)]
        assert len(set(urls)) == 3
        assert got(urls[0]) == got(f"{door.url}/nodes/{fleet.A}/metrics")
        settings = ExporterSettings.model_validate({"targets": urls})
        batches = list(ExporterCollector(settings, "c", lambda: fleet.START).collect(WINDOW))
        assert batches[0].rows.num_rows == len(fleet.DEVICES)


def test_a_taken_port_is_named_and_nothing_stays_behind() -> None:
    threads = threading.active_count()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match=f"port {port} of 127.0.0.1"):
            ExporterServer(fleet.World(), port=port).__enter__()
        with (
            pytest.raises(UsageError, match=f"port {port} "),
            ExporterServer(fleet.World(), node_port=port),
        ):
            pass
    assert threading.active_count() == threads


def test_a_closed_door_answers_nobody() -> None:
    with ExporterServer(fleet.World()) as door:
        url = door.url
        assert got(f"{url}/kube-state-metrics/metrics")
    with pytest.raises(urllib.error.URLError):
        got(f"{url}/kube-state-metrics/metrics")


@pytest.mark.parametrize(
    "path",
    [
        "/nodes/nowhere/metrics",
        "/cadvisor/nowhere/metrics",
        "/jupyter/team-genai/llm-pretrain-worker-0/api/kernels",
        "/jupyter/team-risk/jupyter-alice-0/api/contents",
        "/inference/team-risk/jupyter-alice-0/metrics",
        "/inference/no/body/metrics",
        "/sd?job=none",
        "/metrics",
    ],
)
def test_what_is_not_there_is_not_found(path: str) -> None:
    with (
        ExporterServer(fleet.World()) as door,
        pytest.raises(urllib.error.HTTPError, match="404"),
    ):
        got(door.url + path)


def test_host_counters_grow_by_what_the_looks_say() -> None:
    world = fleet.World(fleet.block(21))
    with ExporterServer(world) as door:
        url = f"{door.url}/cadvisor/{fleet.A}/metrics"
        first = values(got(url))
        world.turn(20)
        last = values(got(url))
    name, pod = "container_cpu_usage_seconds_total", "llm-pretrain-worker-0"
    assert last[name, pod] - first[name, pod] == pytest.approx(600 * 3.5)
    assert last[name, "jupyter-alice-0"] == pytest.approx(6.0)
    received = "container_network_receive_bytes_total"
    assert last[received, pod] == pytest.approx(600 * 100)
    periods, throttled = (f"container_cpu_cfs_{n}periods_total" for n in ("", "throttled_"))
    assert last[periods, pod] == pytest.approx(6000)
    assert last[throttled, pod] == pytest.approx(1500)
    assert ("container_memory_working_set_bytes", pod) in last
    assert (name, "jupyter-bob-0") not in last


def test_a_gone_pod_has_no_counters_and_a_new_one_begins_at_zero() -> None:
    world = fleet.World(fleet.block(21))
    with ExporterServer(world) as door:
        url = f"{door.url}/cadvisor/{fleet.A}/metrics"
        got(url)
        gone = [h for h in world.now.hosts if h.holder.pod != "jupyter-alice-0"]
        world.now = msgspec.structs.replace(world.now, hosts=gone)
        assert "jupyter-alice-0" not in got(url)
        world.turn(20)
        new = values(got(url))
    assert new["container_cpu_usage_seconds_total", "jupyter-alice-0"] == 0


def test_notebooks_are_read_by_fallows_collector(scrape: Callable[..., Scraped]) -> None:
    one = scrape()
    one.world.now = msgspec.structs.replace(
        one.world.now,
        hosts=[
            msgspec.structs.replace(h, kernel_busy=True) if h.holder.pod == "jupyter-bob-0" else h
            for h in one.world.now.hosts
        ],
    )
    settings = JupyterSettings.model_validate({"servers": one.door.notebooks()})
    batches = list(JupyterCollector(settings, "c", lambda: fleet.START).collect(WINDOW))
    rows = {
        r["pod"]: r for b in batches if b.table == "notebook_sample" for r in b.rows.to_pylist()
    }
    now = fleet.START.replace(tzinfo=None)
    alice, bob = rows["jupyter-alice-0"], rows["jupyter-bob-0"]
    assert (alice["kernels"], alice["busy_kernels"], alice["terminals"]) == (1, 0, 1)
    assert alice["last_kernel_activity"] == now - timedelta(hours=9)
    assert alice["last_terminal_activity"] == now - timedelta(hours=8)
    assert (bob["busy_kernels"], bob["terminals"]) == (1, 0)
    assert bob["last_kernel_activity"] == now


def test_closed_doors_say_of_notebooks_and_hosts_what_open_ones_do(
    scrape: Callable[..., Scraped],
) -> None:
    one = scrape()
    settings = JupyterSettings.model_validate({"servers": one.door.notebooks()})
    collector = JupyterCollector(settings, "c", lambda: fleet.START)
    open_ones = [b for b in collector.collect(WINDOW) if b.table == "notebook_sample"]
    theirs = {r["pod"]: r for b in open_ones for r in b.rows.to_pylist()}
    straight = HostRows("c", 600.0)
    batches = {b.table: b.rows.to_pylist() for b in straight.batches(one.world.now.hosts)}
    for row in batches["notebook_sample"]:
        # Of the server as a whole closed doors say nothing: no witness reads it.
        assert {**theirs[row["pod"]], "last_activity": None} == row
    later = fleet.hosts(fleet.START + timedelta(minutes=10))
    served = [
        msgspec.structs.replace(h, requests_total=1500.0) if h.requests_total else h for h in later
    ]
    rows = {r["pod"]: r for r in next(iter(straight.batches(served))).rows.to_pylist()}
    assert rows["fraud-scorer-6d8f7c9b5-x2k4q"]["requests_per_s"] == pytest.approx(0.5)
    assert rows["jupyter-alice-0"]["requests_per_s"] is None
    assert rows["jupyter-alice-0"]["cpu_cores"] == pytest.approx(0.01)


def test_inference_servers_count_their_requests() -> None:
    with ExporterServer(fleet.World()) as door:
        triton = got(f"{door.url}/inference/prod-fraud/fraud-scorer-6d8f7c9b5-x2k4q/metrics")
        vllm = got(f"{door.url}/inference/serving/bert-embed-5f7-abcde/metrics")
    assert values(triton, "model")["nv_inference_request_success_total", "model"] == 1200
    answer = values(vllm, "finished_reason")
    assert answer["vllm:request_success_total", "stop"] == 1200
    assert answer["vllm:num_requests_running", ""] == 3
    assert answer["vllm:num_requests_waiting", ""] == 0
    bounds = values(vllm, "le")
    name = "vllm:e2e_request_latency_seconds"
    assert [bounds[f"{name}_bucket", le] for le in ("0.5", "1.0", "+Inf")] == [600, 1080, 1200]
    assert (bounds[f"{name}_count", ""], bounds[f"{name}_sum", ""]) == (1200, 720)
    assert values(triton, "model")["nv_inference_request_duration_us_total", "model"] == 720e6


def test_a_training_loop_tells_its_throughput_and_memory() -> None:
    with ExporterServer(fleet.World()) as door:
        answer = values(
            got(f"{door.url}/training/team-genai/llm-pretrain-worker-0/metrics"), "rank"
        )
    assert answer["trainer_throughput_tokens_per_sec", ""] == 12_000
    assert answer["torch_memory_reserved_bytes", ""] == 2**36


def test_targets_are_discovered_over_http_and_from_a_file(tmp_path: Path) -> None:
    with ExporterServer(fleet.World()) as door:
        every = json.loads(got(f"{door.url}/sd"))
        dcgm = json.loads(got(f"{door.url}/sd?job=dcgm-exporter"))
        door.write_targets(tmp_path / "targets.json")
        assert json.loads((tmp_path / "targets.json").read_text()) == every == door.targets()
        assert len(dcgm) == 3
        for group in every:
            path = group["labels"]["__metrics_path__"]
            assert got(f"http://{group['targets'][0]}{path}")
        with pytest.raises(UsageError, match="there is no job 'x'"):
            door.targets("x")


def test_a_look_is_read_once_however_often_it_is_scraped() -> None:
    wanted = []

    class Counting(fleet.World):
        def snapshot(self) -> WorldSnapshot:
            wanted.append(1)
            return super().snapshot()

    world = Counting()
    with ExporterServer(world) as door:
        bodies = {got(door.node_url(fleet.A)) for _ in range(3)}
        before = door._texts._telemetry
        got(door.node_url(fleet.B))
        assert door._texts._telemetry is before
    assert len(bodies) == 1
    assert wanted
