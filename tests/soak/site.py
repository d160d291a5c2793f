"""Everything that a soak runs: stores, sources, a cluster, and the service over them."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import yaml

from fallow.settings import Settings, load
from fallow.tables import Batch
from simulator.cluster import nodes
from simulator.cluster.cluster import SimulatedCluster
from simulator.kube.server import KubeServer
from simulator.kube.store import ObjectStore
from tests.servers import postgres, prometheus, s3
from tests.soak.exporters import CountingExporter
from tests.soak.proxy import Proxy
from warehouse.lake import Warehouse

ROOT = Path(__file__).resolve().parents[2]
EXPORTERS, GPUS = 10, 4
CANARY = "fallow-canary"
STOP_WITHIN_S = 8.0
"""`service.stop_within` of the soak, so that the service fits into Kubernetes' default grace."""
GRACE_S = 30.0
"""SIGTERM must end the service within this time: `STOP_WITHIN_S` and the 20 s of its closing."""
DISK_MB = 400
EARLIER = timedelta(days=12)
"""The rows of before the soak begin so long ago: all are archived in it."""
EARLIER_FOR = timedelta(days=2)


class Service:
    """The process of `fallow up`, which is killed, stopped and started again."""

    def __init__(self, folder: Path, config: Path, environ: dict[str, str]) -> None:
        self._config, self._environ = config, environ
        self._clock = folder / "clock"
        self._log = folder / "service.log"
        self.step(0)
        self.stops: list[float] = []
        self.peak_mb: list[tuple[float, float]] = []
        self.exits: list[int] = []
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; it waits for nothing."""
        with self._log.open("ab") as out:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.soak.service", self._clock, self._config],
                stdout=out,
                stderr=out,
                cwd=ROOT,
                env=self._environ,
            )

    def keep_running(self) -> None:
        """Start it again if it has ended by itself, as Kubernetes does; note how it ended."""
        if self._process is None or self._process.poll() is None:
            return
        self.exits.append(self._process.returncode)
        self.start()

    def kill(self) -> None:
        """Send SIGKILL and start it again."""
        self._end(signal.SIGKILL)
        self.start()

    def stop(self) -> float:
        """Send SIGTERM; return the seconds until it has ended."""
        began = time.monotonic()
        self._end(signal.SIGTERM)
        took = time.monotonic() - began
        self.stops.append(took)
        return took

    def kill_for_good(self) -> None:
        """End it however it stands."""
        self._end(signal.SIGKILL)

    def step(self, seconds: float) -> None:
        """Let its wall clock be so many seconds ahead of this machine's."""
        self._clock.write_text(str(seconds))

    def sample_memory(self) -> None:
        """Note its resident memory in MB now."""
        if self._process is None or self._process.poll() is not None:
            return
        for line in Path(f"/proc/{self._process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                self.peak_mb.append((time.monotonic(), int(line.split()[1]) / 1024))

    def _end(self, number: int) -> None:
        if self._process is None or self._process.poll() is not None:
            return
        self._process.send_signal(number)
        try:
            self._process.wait(4 * GRACE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class SoakSite:
    """The parts of one soak; `faults` of the stores go through their proxies."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder, self.began = folder, datetime.now(UTC)
        self.home = folder / "home"
        self.small_disk = mount_small_disk(self.home, stack)
        self.exporters = [CountingExporter(f"node-{n}", GPUS) for n in range(EXPORTERS)]
        self.polled = CountingExporter("node-prometheus", GPUS)
        self.postgres = stack.enter_context(postgres.serving())
        self.catalog_proxy = Proxy(self.postgres.port)
        ports = (str(self.postgres.port), str(self.catalog_proxy.port))
        catalog = self.postgres.catalog("soak").replace(*ports)
        store_url = stack.enter_context(s3.serving())
        s3.make_bucket(store_url, "soak")
        self.store_proxy = Proxy(int(store_url.rpartition(":")[2]))
        targets = [{"targets": [f"127.0.0.1:{self.polled.port}"]}]
        scraped = [{"job_name": "dcgm-exporter", "static_configs": targets}]
        configured = yaml.safe_dump(
            {"global": {"scrape_interval": "2s"}, "scrape_configs": scraped}
        )
        (folder / "prometheus").mkdir()
        prometheus_url = stack.enter_context(
            prometheus.serving(folder / "prometheus" / "data", configured=configured)
        )
        self.prometheus_proxy = Proxy(int(prometheus_url.rpartition(":")[2]))
        self.cluster = stack.enter_context(run_cluster())
        self.api_proxy = Proxy(self.cluster.port)
        kubeconfig = write_kubeconfig(folder / "kubeconfig", self.api_proxy.port)
        self.environ = {
            **os.environ, "KUBECONFIG": str(kubeconfig), "PYTHONFAULTHANDLER": "1"
        }  # fmt: skip
        self.config = folder / "fallow.yaml"
        self.config.write_text(yaml.safe_dump(self._settings(catalog)))
        self.service = Service(folder, self.config, self.environ)

    @property
    def settings(self) -> Settings:
        """The settings of the service."""
        return load(file=self.config, environ={}).settings

    def fallow(self, *words: str) -> "subprocess.Popen[str]":
        """Start a command of ours in this site."""
        return subprocess.Popen(
            [Path(sys.executable).with_name("fallow"), *words, "--config", self.config],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=self.environ,
        )

    def store_earlier_rows(self) -> tuple[int, float]:
        """Store hourly rows of the days before; return their count and the sum of their use."""
        hours = range(int(EARLIER_FOR.total_seconds() // 3600))
        instants = [self.began - EARLIER + timedelta(hours=hour) for hour in hours]
        devices = [self.exporters[0].device(gpu) for gpu in range(GPUS)]
        rows = [
            (instant.replace(tzinfo=None), device, float(at % 90))
            for at, instant in enumerate(instants)
            for device in devices
        ]
        columns = {
            "cluster": ["soak"] * len(rows),
            "ts": [instant for instant, _, _ in rows],
            "device": [device for _, device, _ in rows],
            "node": ["node-0"] * len(rows),
            "interval_s": [3600.0] * len(rows),
            "gpu_util_pct": [use for _, _, use in rows],
        }
        with Warehouse.open(self.settings, write=True) as warehouse:
            warehouse.ingest([Batch.of("sample", columns)])
        return len(rows), sum(use for _, _, use in rows)

    def _settings(self, catalog: str) -> dict[str, Any]:
        store = f"http://127.0.0.1:{self.store_proxy.port}"
        keys = {"access_key_id": "soak", "secret_access_key": "soak", "region": "us-east-1"}
        return {
            "cluster": "soak",
            "home": str(self.home),
            "warehouse": {
                "catalog": catalog,
                "data": str(self.home / "data"),
                "cold": "s3://soak/cold",
                "s3": {"endpoint": store, **keys},
                "threads": 1,
            },
            "exporters": {
                "targets": [exporter.url for exporter in self.exporters],
                "interval": "2s",
                "timeout": "3s",
            },
            "prometheus": {
                "url": f"http://127.0.0.1:{self.prometheus_proxy.port}",
                "step": "2s",
                "timeout": "5s",
            },
            "dashboard": {"listen": f"127.0.0.1:{free_port()}"},
            "kubernetes": {"enabled": True, "context": "soak", "timeout": "5s"},
            "service": {
                "collect_every": "2s",
                "inventory_every": "10s",
                "rollup_every": "10s",
                "analyze_every": "30s",
                "maintain_every": "20s",
                "stop_within": f"{STOP_WITHIN_S:.0f}s",
                "listen": f"127.0.0.1:{free_port()}",
            },
            "actions": {
                "canary": {"image": "pause:3.10", "namespace": CANARY, "timeout": "150s"},
                # The run after a killed one waits for the end of its Lease.
                "lease": {"duration": "30s"},
                "stick": "30s",
            },
            "prices": {"usd_per_gpu_hour": "2.00"},
        }


@contextmanager
def run_cluster() -> Iterator[KubeServer]:
    """Run a simulated cluster in real time behind the API that the simulator serves."""
    store = ObjectStore(time.time, 7)
    cluster = SimulatedCluster(store, nodes.build_nodes({"h100": 1, "a100": 1}), seed=7)
    for name in (CANARY, "fallow"):
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        store.create("Namespace", body)
    stop = threading.Event()

    def live() -> None:
        while not stop.wait(0.1):
            cluster.settle(time.time())

    with KubeServer(store) as server:
        cluster.settle(time.time())
        for node in store.list("Node", ""):
            store.patch("Node", node["metadata"]["name"], "", {"spec": {"taints": None}})
        thread = threading.Thread(target=live, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            stop.set()
            thread.join()


def write_kubeconfig(path: Path, port: int) -> Path:
    """Write the way to the API server of the soak."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "soak", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": "soak", "user": {"token": "t"}}],
        "contexts": [{"name": "soak", "context": {"cluster": "soak", "user": "soak"}}],
        "current-context": "soak",
    }
    path.write_text(json.dumps(config))
    return path


def mount_small_disk(place: Path, stack: ExitStack) -> bool:
    """Put a small file system at the home, so that it can be full; False = not allowed here."""
    place.mkdir(parents=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m,mode=700", "tmpfs", str(place)]
    if (
        not shutil.which("mount")
        or subprocess.run(command, check=False, capture_output=True).returncode
    ):
        return False
    stack.callback(subprocess.run, ["umount", "-l", str(place)], check=False)
    return True


def fetch_text(url: str) -> str:
    """Return what a URL answers."""
    with urllib.request.urlopen(url, timeout=5) as answer:
        return str(answer.read().decode())


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
