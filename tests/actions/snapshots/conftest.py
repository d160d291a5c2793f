"""A lab for each test of snapshots."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from actions.snapshots.containers import ContainerRef, KubernetesRunner
from fallow.settings.snapshots import SnapshotSettings
from simulator.kube.exec import Machine
from simulator.kube.server import KubeServer
from simulator.kube.store import ObjectStore
from tests.actions.snapshots.lab import HOME, Lab, Site


@pytest.fixture
def place() -> ContainerRef:
    return ContainerRef("lab", "nb-0", "notebook")


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    from kubernetes import client

    store = ObjectStore(time.time)
    with KubeServer(store) as server:
        configuration = client.Configuration()
        configuration.host = server.url
        files = tmp_path / "container"
        (files / HOME.strip("/")).mkdir(parents=True)
        made = Lab(
            server,
            Site(server.url),
            Machine(files, HOME),
            KubernetesRunner(client.ApiClient(configuration), timeout_s=20),
            files,
            tmp_path / "kept",
            SnapshotSettings(),
        )
        made.post("/api/v1/namespaces", {"metadata": {"name": "lab"}})
        yield made
        made.site.pool.clear()
