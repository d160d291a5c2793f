"""Every exporter of a world over HTTP on loopback: one server, a path per node (or a port).

    /nodes/<node>/metrics                        dcgm-exporter
    /kube-state-metrics/metrics                  kube-state-metrics
    /cadvisor/<node>/metrics                     the kubelet's containers
    /jupyter/<namespace>/<pod>/api/<what>        kernels, terminals, status
    /inference/<namespace>/<pod>/metrics         vLLM or Triton
    /training/<namespace>/<pod>/metrics          a training loop
    /sd?job=<job>                                targets for a Prometheus (http_sd)

A node's own port answers /metrics. An exporter that is down breaks the connection off.
"""

import asyncio
import json
import threading
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec
from aiohttp import web

from fallow.errors import UsageError
from simulator.exporters import inference, jupyter, kube_state, training
from simulator.exporters.cadvisor import Counters
from simulator.exporters.dcgm import RECOMMENDED, Texts, name_exporter_pod
from simulator.exporters.device_telemetry import get_skew_s
from simulator.exporters.quirks import Quirks
from simulator.exporters.snapshot import SnapshotSource, WorldSnapshot
from simulator.models import HostSample

HOST = "127.0.0.1"
JOBS = ("dcgm-exporter", "kube-state-metrics", "cadvisor", "inference", "training")
_START_S = 30


class _IndexedSnapshot(msgspec.Struct):
    """A snapshot with the indexes that requests use: built once per snapshot."""

    snapshot: WorldSnapshot
    pods: dict[tuple[str, str], Mapping[str, Any]]
    node_of: dict[str, str]
    hosts: dict[tuple[str, str], HostSample]
    nodes: list[str]
    kube_state: bytes | None = None


class ExporterServer:
    """Serves a source's exporters while the context lasts, from its latest snapshot."""

    def __init__(
        self,
        source: SnapshotSource,
        quirks: Quirks | None = None,
        *,
        port: int = 0,
        node_port: int | None = None,
        counters: str = RECOMMENDED,
    ) -> None:
        """Say where to serve: `port` 0 is any free one.

        With `node_port` every node of the first snapshot also gets a port of its own, counted from
        there (0: any free ones).
        """
        self._source, self._quirks = source, quirks or Quirks.of()
        self._port, self._node_port = port, node_port
        self._texts = Texts(self._quirks, counters)
        self._counters = Counters()
        self._now: _IndexedSnapshot | None = None
        self._node_ports: dict[str, int] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._thread: threading.Thread | None = None
        self._started = threading.Event()
        self._failure: Exception | None = None

    def __enter__(self) -> Self:
        """Begin to serve.

        Raises:
            UsageError: a port is taken; it is named.
        """
        self._thread = threading.Thread(target=self._run, name="exporters", daemon=True)
        self._thread.start()
        self._started.wait(_START_S)
        if self._failure is not None:
            self._thread.join()
            raise self._failure
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop serving; nothing is left running."""
        if self._loop is not None and self._stop is not None:
            self._loop.call_soon_threadsafe(self._stop.set)
        if self._thread is not None:
            self._thread.join()

    @property
    def url(self) -> str:
        """Where the server is, without a slash at the end."""
        return f"http://{HOST}:{self._port}"

    def node_url(self, node: str) -> str:
        """Return the address of a node's exporter: its own port where it has one."""
        own = self._node_ports.get(node)
        return f"{self.url}/nodes/{node}/metrics" if own is None else f"http://{HOST}:{own}/metrics"

    def notebooks(self) -> list[str]:
        """Return the notebook servers there are now, as the setting `jupyter.servers` has them."""
        hosts = self._source.snapshot().hosts
        return [
            f"{h.holder.namespace}/{h.holder.pod}={self.url}/jupyter/{h.holder.namespace}/"
            f"{h.holder.pod}/"
            for h in hosts
            if jupyter.is_serving(h)
        ]

    def targets(self, job: str = "") -> list[dict[str, Any]]:
        """Return the targets there are now (of one job) as Prometheus discovers them.

        Raises:
            UsageError: no such job.
        """
        if job and job not in JOBS:
            raise UsageError(f"there is no job {job!r}", hint=f"jobs: {', '.join(JOBS)}")
        return _list_targets(
            _index_snapshot(self._source.snapshot()), self._port, self._node_ports, job
        )

    def write_targets(self, path: Path) -> None:
        """Write all targets into a file for Prometheus' file_sd."""
        path.write_text(json.dumps(self.targets(), indent=1), encoding="utf-8")

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except Exception as error:  # noqa: BLE001  (raised again by whoever waits for the start)
            self._failure = error
        finally:
            self._started.set()

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        app = web.Application()
        for path, answer in {
            "/metrics": self._own_port,
            "/nodes/{node}/metrics": self._node,
            "/kube-state-metrics/metrics": self._kube_state,
            "/cadvisor/{node}/metrics": self._cadvisor,
            "/jupyter/{namespace}/{pod}/api/{api}": self._jupyter,
            "/inference/{namespace}/{pod}/metrics": self._inference,
            "/training/{namespace}/{pod}/metrics": self._training,
            "/sd": self._sd,
        }.items():
            app.router.add_get(path, answer)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        try:
            self._port = await _listen(runner, self._port)
            if self._node_port is not None:
                for place, node in enumerate(self._latest().nodes):
                    wanted = self._node_port and self._node_port + place
                    self._node_ports[node] = await _listen(runner, wanted)
            self._started.set()
            await self._stop.wait()
        finally:
            await runner.cleanup()

    def _latest(self) -> _IndexedSnapshot:
        snapshot = self._source.snapshot()
        if self._now is None or self._now.snapshot is not snapshot:
            self._counters.advance(snapshot.hosts)
            self._now = _index_snapshot(snapshot)
        return self._now

    async def _own_port(self, request: web.Request) -> web.StreamResponse:
        port = request.transport.get_extra_info("sockname")[1] if request.transport else 0
        node = next((n for n, own in self._node_ports.items() if own == port), None)
        if node is None:
            raise web.HTTPNotFound(text=__doc__)
        return self._exporter(request, node)

    async def _node(self, request: web.Request) -> web.StreamResponse:
        return self._exporter(request, request.match_info["node"])

    def _exporter(self, request: web.Request, node: str) -> web.StreamResponse:
        snapshot = self._latest().snapshot
        try:
            body = self._texts.text(snapshot.block, snapshot.tick, node, snapshot.allocations)
        except UsageError as error:
            raise web.HTTPNotFound(text=str(error)) from error
        if body is None and request.transport is not None:
            request.transport.abort()
        return _answer_text(body or b"")

    async def _kube_state(self, request: web.Request) -> web.StreamResponse:
        del request
        now = self._latest()
        if now.kube_state is None:
            now.kube_state = kube_state.render_text(now.snapshot.objects)
        return _answer_text(now.kube_state)

    async def _cadvisor(self, request: web.Request) -> web.StreamResponse:
        now = self._latest()
        node = request.match_info["node"]
        if node not in now.nodes:
            raise web.HTTPNotFound(text=f"there is no node {node!r}")
        return _answer_text(self._counters.text(now.snapshot.hosts, now.node_of, node))

    async def _jupyter(self, request: web.Request) -> web.StreamResponse:
        now, sample = self._host(request, jupyter.is_serving)
        api = request.match_info["api"]
        if api not in jupyter.APIS:
            raise web.HTTPNotFound(text=f"no such API: {', '.join(jupyter.APIS)}")
        pod = now.pods.get((sample.holder.namespace, sample.holder.pod), {})
        text = (pod.get("status") or {}).get("startTime")
        ahead = get_skew_s(self._quirks, now.node_of.get(sample.holder.uid, "")) or 0.0
        started_at = datetime.fromisoformat(text) if text else None
        body = jupyter.answer(sample, api, started=started_at, skew_s=ahead)
        return web.Response(body=body, content_type="application/json")

    async def _inference(self, request: web.Request) -> web.StreamResponse:
        now, sample = self._host(request, inference.is_serving)
        pod = now.pods.get((sample.holder.namespace, sample.holder.pod))
        return _answer_text(inference.render_text(sample, inference.find_flavour(pod)))

    async def _training(self, request: web.Request) -> web.StreamResponse:
        _, sample = self._host(request, training.is_training)
        return _answer_text(training.render_text(sample))

    def _host(
        self, request: web.Request, wanted: Callable[[HostSample], bool]
    ) -> tuple[_IndexedSnapshot, HostSample]:
        now = self._latest()
        key = (request.match_info["namespace"], request.match_info["pod"])
        sample = now.hosts.get(key)
        if sample is None or not wanted(sample):
            raise web.HTTPNotFound(text=f"pod {'/'.join(key)} serves nothing of the kind")
        return now, sample

    async def _sd(self, request: web.Request) -> web.StreamResponse:
        job = request.query.get("job", "")
        if job and job not in JOBS:
            raise web.HTTPNotFound(text=f"there is no job {job!r}; jobs: {', '.join(JOBS)}")
        return web.json_response(_list_targets(self._latest(), self._port, self._node_ports, job))


def _index_snapshot(snapshot: WorldSnapshot) -> _IndexedSnapshot:
    pods = {
        (p["metadata"]["namespace"], p["metadata"]["name"]): p
        for p in snapshot.objects.get("Pod", ())
    }
    node_of = {
        p["metadata"].get("uid", ""): (p.get("spec") or {}).get("nodeName", "")
        for p in pods.values()
    }
    hosts = {(h.holder.namespace, h.holder.pod): h for h in snapshot.hosts}
    return _IndexedSnapshot(
        snapshot, pods, node_of, hosts, list(dict.fromkeys(d.node for d in snapshot.block.devices))
    )


def _list_targets(
    now: _IndexedSnapshot, port: int, node_ports: Mapping[str, int], job: str
) -> list[dict[str, Any]]:
    here = f"{HOST}:{port}"
    targets: list[dict[str, Any]] = []

    def add(of: str, path: str, at: str = here, **labels: str) -> None:
        if job in {"", of}:
            label_set = {"job": of, "__metrics_path__": path, **labels}
            targets.append({"targets": [at], "labels": label_set})

    for node in now.nodes:
        own = node_ports.get(node)
        path = f"/nodes/{node}/metrics" if own is None else "/metrics"
        about = {
            "instance": f"{node}:9400",
            "namespace": "gpu-operator",
            "pod": name_exporter_pod(node),
            "container": "dcgm-exporter",
        }
        add("dcgm-exporter", path, here if own is None else f"{HOST}:{own}", **about)
        add("cadvisor", f"/cadvisor/{node}/metrics", instance=f"{node}:10250")
    add("kube-state-metrics", "/kube-state-metrics/metrics", instance="kube-state-metrics:8080")
    for (namespace, pod), sample in now.hosts.items():
        if inference.is_serving(sample):
            path = f"/inference/{namespace}/{pod}/metrics"
            add("inference", path, instance=f"{pod}:8000", namespace=namespace, pod=pod)
        if training.is_training(sample):
            path = f"/training/{namespace}/{pod}/metrics"
            add("training", path, instance=f"{pod}:8001", namespace=namespace, pod=pod)
    return targets


async def _listen(runner: web.AppRunner, port: int) -> int:
    """Listen on a port (0: a free one) and return it."""
    site = web.TCPSite(runner, HOST, port)
    try:
        await site.start()
    except OSError as error:
        raise UsageError(
            f"port {port} of {HOST} cannot be listened on: {error.strerror or error}",
            hint="is something else running there? name another port, or 0 for a free one",
        ) from error
    return int(runner.addresses[-1][1])


def _answer_text(body: bytes) -> web.Response:
    kind = "text/plain; version=0.0.4; charset=utf-8"
    return web.Response(body=body, headers={"Content-Type": kind})
