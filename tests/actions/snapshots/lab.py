"""A notebook's pod on the stand-in API, its container a folder of this machine."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import urllib3

from actions.snapshots import Snapshotter
from actions.snapshots.containers import KubernetesRunner
from actions.snapshots.store import FolderStore
from fallow.action_models import Change, FreedPod, Intent, Target
from fallow.settings.snapshots import SnapshotSettings
from simulator.kube.exec import Machine
from simulator.kube.server import KubeServer

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
HOME = "/home/jovyan"
CLAIM = {"name": "home", "persistentVolumeClaim": {"claimName": "home-ann"}}


class Answer(msgspec.Struct):
    code: int
    reason: str = ""


class Site:
    """The read side and the writes of a cluster, by plain HTTP."""

    name = "lab"

    def __init__(self, url: str) -> None:
        self.url, self.pool = url, urllib3.PoolManager(retries=False)

    def get(self, path: str) -> Mapping[str, Any] | None:
        answer = self.pool.request("GET", self.url + path)
        return answer.json() if answer.status == 200 else None

    def items(
        self, path: str, *, labels: str = "", fields: str = ""
    ) -> Sequence[Mapping[str, Any]]:
        del labels, fields
        found = self.get(path)
        return found["items"] if found else []

    def collection(self, kind: str, group: str | None = None, namespace: str = "") -> str | None:
        del namespace
        path = f"/apis/{group}/v1/{kind.lower()}es"
        return path if self.get(path) else None

    def pods(self, target: Target) -> Sequence[Mapping[str, Any]]:
        return self.items(f"/api/v1/namespaces/{target.namespace}/pods")

    def send(self, change: Change, *, dry_run: bool) -> Answer:
        assert not dry_run
        answer = self.pool.request(
            change.method,
            self.url + change.path,
            body=msgspec.json.encode(change.body),
            headers={"Content-Type": change.content_type},
        )
        return Answer(answer.status, str(answer.json().get("message", "")))


@dataclass
class Lab:
    """Everything a test of snapshots needs."""

    server: KubeServer
    site: Site
    machine: Machine
    shell: KubernetesRunner
    files: Path
    kept: Path
    settings: SnapshotSettings

    @property
    def home(self) -> Path:
        return self.files / HOME.strip("/")

    def post(self, path: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
        answer = self.site.pool.request(
            "POST", self.site.url + path, body=msgspec.json.encode(body)
        )
        assert answer.status < 300, answer.data
        found: Mapping[str, Any] = answer.json()
        return found

    def patch(self, path: str, body: Mapping[str, Any]) -> None:
        kind = {"Content-Type": "application/merge-patch+json"}
        data = msgspec.json.encode(body)
        answer = self.site.pool.request("PATCH", self.site.url + path, body=data, headers=kind)
        assert answer.status < 300, answer.data

    def pod(self, name: str = "nb-0", **spec: Any) -> FreedPod:
        """Run a pod whose container is the folder."""
        container = {"name": "notebook", "image": "jupyter"}
        container["resources"] = {"limits": {"nvidia.com/gpu": "1"}}  # type: ignore[assignment]
        mounts = spec.pop("mounts", None)
        if mounts:
            container["volumeMounts"] = mounts
        side = {"name": "proxy", "image": "istio"}
        made = self.post(
            "/api/v1/namespaces/lab/pods",
            {"metadata": {"name": name}, "spec": {"containers": [side, container], **spec}},
        )
        self.patch(f"/api/v1/namespaces/lab/pods/{name}/status", {"status": {"phase": "Running"}})
        self.server.containers.add("lab", name, self.machine, "notebook")
        return FreedPod("lab", name, made["metadata"]["uid"], None, 1.0)

    def intent(self, *held: FreedPod) -> Intent:
        target = Target("lab", "kubeflow.org/v1", "Notebook", "lab", "nb", "uid-1")
        return Intent(target, "suspend", (), (), held)

    def snapshotter(self, **settings: Any) -> Snapshotter:
        chosen = SnapshotSettings(**{**self.settings.model_dump(), **settings})
        return Snapshotter(
            self.site,
            self.shell,
            FolderStore(self.kept),
            chosen,
            clock=lambda: NOW,
            sleep=lambda _s: None,
        )
