"""A small cluster on a store, whose time the test moves."""

from collections.abc import Callable
from typing import Any

import pytest

from simulator.cluster import nodes
from simulator.cluster.cluster import SimulatedCluster
from simulator.cluster.scheduler.requests import Policy
from simulator.kube.store import ObjectStore

START_S = 1_795_000_000.0
Object = dict[str, Any]


class Small:
    """A store, a cluster and a clock; `team-a` is there."""

    def __init__(
        self, pools: dict[str, int], *, placement: Policy = "best-fit", seed: int = 7
    ) -> None:
        self.now_s = START_S
        self.store = ObjectStore(lambda: self.now_s, seed)
        specs = nodes.build_nodes(pools)
        self.cluster = SimulatedCluster(self.store, specs, placement=placement, seed=seed)
        self.make("Namespace", "team-a", namespace="")
        self.settle()

    def settle(self) -> None:
        self.cluster.settle(self.now_s)

    def run(self, seconds: float) -> None:
        """Let time pass, stopping at every moment at which the cluster acts."""
        end_s = self.now_s + seconds
        self.settle()
        while self.cluster.next_event() <= end_s:
            self.now_s = max(self.cluster.next_event(), self.now_s)
            self.settle()
        self.now_s = end_s
        self.settle()

    def make(
        self, kind: str, name: str, spec: Any = None, *, namespace: str = "team-a", **meta: Any
    ) -> Object:
        known = self.store.kind(kind)
        body: Object = {"apiVersion": known.api_version, "kind": known.kind}
        body["metadata"] = {"name": name, **({"namespace": namespace} if namespace else {}), **meta}
        if spec is not None:
            body["spec"] = spec
        return self.store.create(kind, body, manager="kubectl")

    def get(self, kind: str, name: str) -> Object:
        namespaced = self.store.kind(kind).namespaced
        found = self.store.get(kind, name, "team-a" if namespaced else "")
        assert found is not None
        return found

    def patch(self, kind: str, name: str, body: Any, **how: Any) -> Object:
        namespaced = self.store.kind(kind).namespaced
        where = "team-a" if namespaced else ""
        return self.store.patch(kind, name, where, body, manager="fallow", **how)

    def pods(self, phase: str | None = None) -> list[Object]:
        return [
            p
            for p in self.store.list("Pod", "team-a")
            if phase is None or p["status"]["phase"] == phase
        ]

    def names(self) -> list[str]:
        return [p["metadata"]["name"] for p in self.pods()]

    def held(self) -> int:
        """How many devices are held now."""
        return sum(len(t.devices) for t in self.cluster.allocations if t.end_s > self.now_s)

    def events(self, reason: str) -> list[Object]:
        return [e for e in self.store.list("Event") if e["reason"] == reason]


def template(gpus: int = 1, *, labels: dict[str, str] | None = None, **spec: Any) -> Object:
    limits = {"nvidia.com/gpu": str(gpus), "cpu": "4", "memory": "16Gi"}
    if not gpus:
        del limits["nvidia.com/gpu"]
    container = {"name": "main", "image": "work:1", "resources": {"limits": limits}}
    return {"metadata": {"labels": labels or {}}, "spec": {"containers": [container], **spec}}


def deployment(replicas: int, gpus: int = 1, app: str = "d") -> Object:
    labels = {"app": app}
    return {
        "replicas": replicas,
        "selector": {"matchLabels": labels},
        "template": template(gpus, labels=labels),
    }


def job(gpus: int = 1, width: int = 1, **spec: Any) -> Object:
    body = template(gpus, restartPolicy="Never")
    return {"parallelism": width, "completions": width, "template": body, **spec}


@pytest.fixture
def small() -> Callable[..., Small]:
    return Small


@pytest.fixture
def shapes() -> Any:
    """Return the functions that write specs: template, deployment, job."""

    class Shapes:
        template = staticmethod(template)
        deployment = staticmethod(deployment)
        job = staticmethod(job)

    return Shapes
