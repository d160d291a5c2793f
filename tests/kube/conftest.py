"""A cluster to ask, through the official client and a kubeconfig file: the simulator's API."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from collectors.kube.collector import KubernetesCollector
from fallow.kube.api import ApiConnection, BackOff, connect
from fallow.settings.collectors import KubernetesSettings
from fallow.window import Window
from simulator.kube.kinds import ApiKind
from simulator.kube.server import KubeServer
from simulator.kube.store import ObjectStore
from tests.kube.objects import Object

Rows = dict[str, list[dict[str, Any]]]


class Cluster(KubeServer):
    """The API server, and objects put into it as they stand; uids are `kind-name`."""

    def __init__(self, now: datetime) -> None:
        super().__init__(ObjectStore(now.timestamp, installed=()))

    def serve(
        self, group: str, version: str, plural: str, kind: str, *, namespaced: bool = True
    ) -> None:
        """Serve a kind, as a definition would."""
        self.store.catalog.serve(ApiKind(kind, group, (version,), plural, namespaced))

    def put(self, kind: str, item: Object) -> Object:
        """Create or change an object; watches see it."""
        item["metadata"].setdefault("uid", f"{kind.lower()}-{item['metadata']['name']}")
        return self.store.restore(kind, item)

    def delete(self, kind: str, name: str, namespace: str = "") -> None:
        """Take an object away."""
        self.store.remove(kind, name, namespace)

    def forget(self) -> None:
        """Compact history: versions up to now are gone."""
        with self.store.changed:
            self.store.history.forget(self.store.advance())

    @contextmanager
    def away(self) -> Iterator[None]:
        """Answer nobody for a while; open watches break off."""
        self.faults.away = True
        with self.store.changed:
            self.store.changed.notify_all()
        try:
            yield
        finally:
            self.faults.away = False

    def forbid(self, *resources: str) -> None:
        """Let nobody read some resources."""
        for resource in resources:
            self.access.deny("*", resource)


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, now: datetime) -> Iterator[Cluster]:
    """Return a running API server that the current kubeconfig names."""
    with Cluster(now) as server:
        entry = {"name": "test", "cluster": {"server": server.url}}
        user = {"name": "test", "user": {"token": "secret-token"}}
        context = {"name": "test", "context": {"cluster": "test", "user": "test"}}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [entry],
            "users": [user],
            "contexts": [context],
            "current-context": "test",
        }
        path = tmp_path / "kubeconfig"
        path.write_text(json.dumps(config))
        monkeypatch.setenv("KUBECONFIG", str(path))
        import kubernetes.config.kube_config as loader

        # The client reads KUBECONFIG once, when it is imported.
        monkeypatch.setattr(loader, "KUBE_CONFIG_DEFAULT_LOCATION", str(path))
        yield server


@pytest.fixture
def slept() -> list[float]:
    """Return the pauses taken; none is really slept."""
    return []


@pytest.fixture
def api(cluster: Cluster, slept: list[float]) -> ApiConnection:
    """Return a connection whose pauses are only written down."""
    assert cluster.url
    return connect(timeout_s=5, pause=BackOff(slept.append, lambda: 1.0))


class Look:
    """Collects from the cluster and keeps rows by table."""

    def __init__(self, api: ApiConnection, now: datetime) -> None:
        self.now = now
        self.api = api
        self.collector = self.make()

    def make(self, **settings: Any) -> KubernetesCollector:
        return KubernetesCollector(
            KubernetesSettings(**{"page_size": 2, **settings}), "c", lambda: self.now, api=self.api
        )

    def __call__(self) -> Rows:
        rows: Rows = {}
        window = Window.last(KubernetesSettings().timeout, now=self.now)
        for batch in self.collector.collect(window):
            rows.setdefault(batch.table, []).extend(batch.rows.to_pylist())
        return rows


@pytest.fixture
def look(api: ApiConnection, now: datetime) -> Look:
    """Return what looks once at the whole cluster."""
    return Look(api, now)


@pytest.fixture
def poll(request: pytest.FixtureRequest) -> Look:
    """Poll the whole cluster and return its rows."""
    function: Look = request.getfixturevalue("look")
    return function
