"""The Kubernetes API stub in a process of its own: lists through our collector, creates over HTTP.

python -m benchmarks simulator_kube
"""

import http.client
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from benchmarks.result import Result
from collectors.kube.collector import KubernetesCollector
from collectors.kube.shapes import Pod
from fallow.kube.api import ApiConnection
from fallow.kube.api_objects import Page
from fallow.kube.listing import Listing
from fallow.settings.collectors import KubernetesSettings
from fallow.window import Window
from simulator.kube.server import KubeServer
from simulator.kube.store import ObjectStore

PODS, SMALL_PODS = 10_000, 500
CREATES, SMALL_CREATES = 3_000, 200
CLIENTS = 4
NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
SPACE = "bench"


def run(small: bool) -> list[Result]:
    """Measure seconds of a list and of a whole poll, and creates in a second."""
    pods = SMALL_PODS if small else PODS
    creates = SMALL_CREATES if small else CREATES
    from kubernetes import client

    with _run_server(pods) as (port, size):
        config = client.Configuration(host=f"http://127.0.0.1:{port}")
        config.retries = False
        api = ApiConnection(client.ApiClient(config))
        cpu = time.process_time()
        list_s = min(_list(api, pods) for _ in range(3))
        cpu = (time.process_time() - cpu) / 3
        listed_s = min(_list_through_collector(api, pods) for _ in range(2))
        rate = _create(port, creates)
    pages = f"best of 3, pages of {KubernetesSettings().page_size}, pods of {size / 1000:.1f} kB"
    note = f"{pages}; {cpu:.2f} s of CPU on our side"
    name = f"simulator: list {pods:,} pods through the collector's client"
    return [
        Result(name=name, value=list_s, unit="s", reach=2, note=note),
        Result(
            name=f"simulator: a collector's poll of {pods:,} pods, rows and all",
            value=listed_s,
            unit="s",
        ),
        Result(
            name=f"simulator: creates over HTTP, {CLIENTS} clients",
            value=rate,
            unit="creates/s",
            reach=500,
            at_most=False,
        ),
    ]


def _list(api: ApiConnection, pods: int) -> float:
    start = time.perf_counter()
    decoder = msgspec.json.Decoder(Page[Pod])
    listing = Listing(api, "/api/v1/pods", decoder, limit=KubernetesSettings().page_size)
    count = sum(len(page) for page in listing)
    seconds = time.perf_counter() - start
    assert count == pods, count
    return seconds


def _list_through_collector(api: ApiConnection, pods: int) -> float:
    collector = KubernetesCollector(KubernetesSettings(), "bench", lambda: NOW, api=api)
    start = time.perf_counter()
    window = Window.last(timedelta(minutes=1), now=NOW)
    count = sum(b.rows.num_rows for b in collector.collect(window) if b.table == "pod")
    seconds = time.perf_counter() - start
    assert count == pods, count
    return seconds


def _create(port: int, creates: int) -> float:
    def some(worker: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port)
        for i in range(worker, creates, CLIENTS):
            body = json.dumps(_build_pod(f"new-{i}"))
            headers = {"Content-Type": "application/json"}
            connection.request("POST", f"/api/v1/namespaces/{SPACE}/pods", body, headers)
            answer = connection.getresponse()
            answer.read()
            assert answer.status == 201, answer.status
        connection.close()

    start = time.perf_counter()
    with ThreadPoolExecutor(CLIENTS) as pool:
        list(pool.map(some, range(CLIENTS)))
    return creates / (time.perf_counter() - start)


@contextmanager
def _run_server(pods: int) -> Iterator[tuple[int, int]]:
    """Run a server with pods in it; yields its port and the bytes of a pod."""
    command = [sys.executable, "-m", "benchmarks.simulator_kube", str(pods)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            port, size = map(int, process.stdout.readline().split())
            yield port, size
        finally:
            process.terminate()


def _serve(pods: int) -> None:
    store = ObjectStore(NOW.timestamp)
    store.create("Namespace", {"metadata": {"name": SPACE}})
    for i in range(pods):
        store.create("Pod", _build_pod(f"pod-{i}", 8_500), manager="kubelet")
    with KubeServer(store) as server:
        size = len(msgspec.json.encode(store.get("Pod", "pod-0", SPACE)))
        print(server.port, size, flush=True)
        sys.stdin.read()  # until the benchmark ends


def _build_pod(name: str, filling: int = 0) -> dict[str, Any]:
    resources = {"limits": {"nvidia.com/gpu": "1", "cpu": "8", "memory": "64Gi"}}
    env = [{"name": f"VARIABLE_{i}", "value": f"value {i} of {name}"} for i in range(filling // 80)]
    main = {"name": "main", "image": "registry/train:1", "resources": resources, "env": env}
    volumes = [{"name": f"v{i}", "emptyDir": {}} for i in range(10)]
    labels = {"app": name, "team": "research"}
    return {
        "metadata": {"name": name, "namespace": SPACE, "labels": labels},
        "spec": {"containers": [main], "volumes": volumes, "nodeName": "n0"},
    }


if __name__ == "__main__":
    _serve(int(sys.argv[1]))
