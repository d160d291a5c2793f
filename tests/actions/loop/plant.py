"""A whole site in one process: API, exporters, notebook servers, a warehouse and an actor.

    Cluster behind the API stub ─┐
    exporters, one per node ─────┼─► collectors ─► warehouse ─► judge ─► plan ─► actor ─► API
    notebook servers, one per pod┘

Every source is met over HTTP by the collector that a site has; only the clock is the test's.
"""

import json
import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from actions.journal import JournalState
from actions.journal.trust import trust_by_hand
from actions.loop.actor import Actor
from actions.policy.parser import read_policies
from collectors.exporters import ExporterCollector
from collectors.jupyter import JupyterCollector
from collectors.kube.collector import KubernetesCollector
from fallow.action_models import Facts
from fallow.protocols import Collector
from fallow.settings import Settings, load
from fallow.tables import Batch
from fallow.window import Window
from runtime.operations.accounting import pipeline
from runtime.operations.acting import live_actor, plans
from runtime.operations.acting.live_evidence import LiveEvidence
from simulator.cluster import nodes
from simulator.cluster.cluster import SimulatedCluster
from tests.actions.loop.site import SPACE, Site, Told, api, pod_spec
from warehouse.lake import Warehouse

EVERY = timedelta(minutes=10)
GPUS = 8
MODEL = "NVIDIA H100 80GB HBM3"
POLICY = """\
name: reclaim
mode: enforce
match: {analyzer: idle, evidence: confirmed}
allow: {namespaces: ["*"], kinds: [Notebook, Deployment, StatefulSet]}
stages: [observe, notify, {grace: 10m}, {act: [suspend, scale]}]
budgets: [{workloads: 90%, per: 1d}]
concurrent: 5
cool_down: 6h
reversals: {rate: 10%, within: 2h}
max_resources: 100%
"""


class Sources:
    """Exporters at /nodes/NODE/metrics and notebook servers at /pods/POD/api/..."""

    def __init__(self, plant: "Plant") -> None:
        self.plant = plant
        self.away: set[str] = set()
        """Paths that begin so are answered with 503."""
        self.stale_since: datetime | None = None
        """Exporters repeat what they said then, with the timestamps of then."""

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                code, body = sources.answer(self.path.partition("?")[0])
                self.send_response(code)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        sources = self
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, path: str) -> tuple[int, bytes]:
        if any(path.startswith(p) for p in self.away):
            return 503, b"away"
        _, kind, name, *rest = path.split("/")
        if kind == "nodes":
            return 200, self._metrics(name).encode()
        return 200, json.dumps(self._notebook(name, rest[-1])).encode()

    def _metrics(self, node: str) -> str:
        plant, at = self.plant, self.stale_since or self.plant.now
        stamp = "" if self.stale_since is None else f" {round(at.timestamp() * 1000)}"
        lines = []
        for pod in plant.pods():
            if pod["spec"].get("nodeName") != node:
                continue
            name = pod["metadata"]["name"]
            work = plant.work.get(name, 0.0)
            for n in range(GPUS):
                words = (
                    f'gpu="{n}",UUID="GPU-{node}-{n}",device="nvidia{n}",modelName="{MODEL}",'
                    f'Hostname="{node}",namespace="{SPACE}",pod="{name}",container="main"'
                )
                watts = 75.0 + 500.0 * work
                joules = watts * (at - plant.begun).total_seconds()
                for metric, value in (
                    ("DCGM_FI_DEV_GPU_UTIL", 100 * work),
                    ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", work),
                    ("DCGM_FI_DEV_POWER_USAGE", watts),
                    ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", round(joules * 1000)),
                    ("DCGM_FI_DEV_FB_USED", 600),
                    ("DCGM_FI_DEV_FB_FREE", 80_000),
                ):
                    lines.append(f"{metric}{{{words}}} {value}{stamp}")
        return "\n".join(lines) + "\n"

    def _notebook(self, pod: str, what: str) -> Any:
        plant = self.plant
        kernel = plant.kernel_at.get(pod, plant.begun)
        last = plant.terminal_at.get(pod, plant.begun)
        if what == "kernels":
            state = "busy" if pod in plant.busy else "idle"
            return [{"id": "k", "execution_state": state, "last_activity": _text(kernel)}]
        if what == "terminals":
            return [{"name": "1", "last_activity": _text(last)}]
        return {"last_activity": _text(max(kernel, last)), "connections": 0, "kernels": 1}


def _text(instant: datetime) -> str:
    return instant.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class Plant(Site):
    """A site of H100 nodes with eight GPUs each; a replica takes a node."""

    def __init__(self, folder: Path, size: int) -> None:
        super().__init__(folder)
        self.cluster = SimulatedCluster(self.store, nodes.build_nodes({"h100": size}), seed=7)
        self.begun = self.now
        self.work: dict[str, float] = {}
        """Activity of the devices of a pod, by its name."""
        self.kernel_at: dict[str, datetime] = {}
        self.terminal_at: dict[str, datetime] = {}
        self.busy: set[str] = set()
        """Pods whose kernel is busy."""
        self.dark: set[str] = set()
        """Nodes without an exporter."""
        self.sources = Sources(self)

    def __enter__(self) -> Self:
        super().__enter__()
        config = self.settings_of([])
        self._lake = Warehouse.open_in_memory(config, clock=lambda: self.now)
        self.lake = self._lake.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._lake.__exit__(kind, error, trace)
        self.sources.close()
        super().__exit__(kind, error, trace)

    def settings_of(self, servers: Sequence[str]) -> Settings:
        names = [n["metadata"]["name"] for n in self.store.list("Node", "")]
        shown = [n for n in names if n.startswith("h100")]
        settings = load(
            environ={},
            flags={
                "cluster": "c",
                "home": self.folder,
                "kubernetes.enabled": True,
                "exporters.targets": [
                    f"{self.sources.url}/nodes/{n}/metrics" for n in shown if n not in self.dark
                ],
                "exporters.interval": "10m",
                "jupyter.servers": list(servers),
                "service.collect_every": "10m",
            },
        ).settings
        # Some hours cannot say when it is wanted again: that is not asked here.
        idle = settings.idle.model_copy(update={"min_expected_rest": None})
        return settings.model_copy(update={"idle": idle})

    @property
    def config(self) -> Settings:
        pods = [p["metadata"]["name"] for p in self.pods() if p["spec"].get("nodeName")]
        return self.settings_of([f"{SPACE}/{p}={self.sources.url}/pods/{p}" for p in pods])

    def replicas_of(self, name: str, count: int) -> list[str]:
        """Make a Deployment whose replicas take a node each; return the nodes of its pods."""
        labels = {"app": name}
        spec = pod_spec()
        spec["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = str(GPUS)
        template = {"metadata": {"labels": labels}, "spec": spec}
        body = {"replicas": count, "selector": {"matchLabels": labels}, "template": template}
        self.make("Deployment", name, body)
        self.pass_time(minutes=3)
        return [p["spec"]["nodeName"] for p in self.pods() if p["spec"].get("nodeName")]

    def read(self) -> list[Batch]:
        """Read every source once, as a pass of the service does; nothing is stored."""
        config, clock = self.config, lambda: self.now
        collectors: list[Collector] = [
            KubernetesCollector(config.kubernetes, "c", clock, api=api(self.server.url)),
            ExporterCollector(config.exporters, "c", clock),
            JupyterCollector(config.jupyter, "c", clock),
        ]
        return list(pipeline.collect(collectors, Window(self.now - EVERY, self.now)))

    def collect(self, now: datetime) -> None:
        """Read every source once and do the books."""
        self.store_rows(self.read(), now)

    def store_rows(self, rows: Sequence[Batch], now: datetime) -> None:
        pipeline.ingest(self.lake, rows)
        pipeline.account(self.lake, Window(now - timedelta(hours=4), now))

    def live(self, length: timedelta) -> None:
        """Let time pass with a pass over the sources every ten minutes; store at the end."""
        end, rows = self.now + length, []
        while self.now < end:
            self.pass_time(minutes=10)
            rows += self.read()
        self.store_rows(rows, self.now)

    def facts(self) -> list[Facts]:
        """Return the cases of a plan now."""
        return plans.gather_cases(
            self.lake, self.config, at=self.now, cluster="c", names=("idle",)
        )[0]

    def turning(self, meanwhile: Callable[[], None] = lambda: None) -> Actor:
        """Return an actor over the warehouse, with the real planner, gates and executors.

        What happens `meanwhile` happens after the plan, 15 s before the evidence is read again.
        """
        path = self.folder / "policy.yaml"
        path.write_text(POLICY)
        policies = read_policies([path])
        record = JournalState(self.journal()).catch_up()
        for policy in policies:
            trust_by_hand(record, policy, "admin", "a test")
        evidence = Meanwhile(self, meanwhile)
        return live_actor.build_actor(
            self.config,
            record,
            evidence,
            cluster=self.door(),
            policies=policies,
            clock=lambda: self.now,
            identity="plant",
            notifier=Told(),
        )

    def ready(self) -> None:
        """Let a case be seen, its owner notified, and the grace pass; the next turn acts."""
        self.turning().turn(dry_run=False)
        self.live(EVERY)

    def taken(self, meanwhile: Callable[[], None] = lambda: None) -> list[str]:
        """Let an actor have its turn; return what came of each decision that was ready."""
        report = self.turning(meanwhile).turn(dry_run=False)
        assert not report.halted, report.halted
        return [f"{t.result}: {'; '.join(r.text for r in t.reasons)}" for t in report.steps]


class Meanwhile(LiveEvidence):
    """Live evidence; something happens between the plan and the second reading."""

    def __init__(self, plant: Plant, meanwhile: Callable[[], None]) -> None:
        super().__init__(plant.lake, plant.config, plant.collect, lambda: plant.now)
        self._plant, self._meanwhile = plant, meanwhile

    def again(self, facts: Facts, now: datetime) -> Facts | None:
        """Let 15 s pass, and what happens in them."""
        del now
        self._plant.now += timedelta(seconds=15)
        self._meanwhile()
        return super().again(facts, self._plant.now)
