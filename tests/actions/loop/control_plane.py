"""A site on a real server with its controllers: the same words as `Site`, so the same tests."""

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any, Self

from actions.cluster.client import KubeClient
from fallow.errors import FallowError
from simulator.kube.kinds import ApiKind, read_builtin_kinds
from tests.actions.loop.site import POLICY, SETTINGS, SPACE, Evidence, Site, Told
from tests.actions.places import door as door_to
from tests.servers.kube_apiserver import ADMIN, RealServer
from tests.simulator.kube.conftest import MERGE, Kube

Object = dict[str, Any]
REST_S = 30
AMOUNTS = {"cpu": "256", "memory": "1Ti", "pods": "500", "nvidia.com/gpu": "64"}
NODES = ("h100-0", "a100-0")


@cache
def _kinds() -> dict[str, ApiKind]:
    return {k.key: k for k in read_builtin_kinds()}


class RealEvidence(Evidence):
    """Evidence read through a door with credentials."""

    def __init__(self, door: KubeClient, clock: Callable[[], datetime]) -> None:
        super().__init__("http://127.0.0.1:1", clock)
        self.door = door


class RealSite(Site):
    """A site whose cluster is real; its clock is the machine's and an offset."""

    def __init__(self, folder: Path, kube: Kube) -> None:
        self.folder, self.kube = folder, kube
        self.offset = timedelta()
        self.told = Told()
        self.settings, self.policy = SETTINGS, POLICY
        self._made = []
        self.evidence = RealEvidence(self.door(), lambda: self.now)

    @property
    def now(self) -> datetime:  # type: ignore[override]
        """The moment of this site."""
        return datetime.now(UTC) + self.offset

    def __enter__(self) -> Self:
        # The Lease has the journal of the test before, which this site lacks.
        self.kube.ask("DELETE", self._path("Lease", "fallow-actor", "fallow"))
        return self

    def close(self) -> None:
        for journal in self._made:
            journal.close()

    def settle(self) -> None:
        """Wait until every Deployment is as its spec says, and no pod is going or waiting."""
        deadline = time.monotonic() + REST_S
        while busy := self._busy():
            assert time.monotonic() < deadline, busy
            time.sleep(0.02)

    def pass_time(self, **length: float) -> None:
        """Let the clock of the site jump, and the cluster come to rest."""
        self.offset += timedelta(**length)
        self.settle()

    def make(self, kind: str, name: str, spec: Any = None, *, namespace: str = SPACE) -> Object:
        one = _kinds()[kind]
        body: Object = {"apiVersion": one.api_version, "kind": one.kind, "metadata": {"name": name}}
        if spec is not None:
            body["spec"] = spec
            # What tolerates everything is placed on a cordoned node too, by the real scheduler.
            spec.get("template", {}).get("spec", {}).pop("tolerations", None)
        made = self.kube.ask("POST", self._path(kind, "", namespace), body)
        assert made.code == 201, made.body
        return made.body

    def get(self, kind: str, name: str, namespace: str = SPACE) -> Object:
        found = self.kube.ask("GET", self._path(kind, name, namespace))
        assert found.code == 200, found.body
        return found.body

    def patch(self, kind: str, name: str, body: Any, *, manager: str = "kubectl-edit") -> Object:
        path = self._path(kind, name, SPACE)
        made = self.kube.ask("PATCH", path, body, media=MERGE, fieldManager=manager)
        assert made.code == 200, made.body
        return made.body

    def remove(self, kind: str, name: str, namespace: str = SPACE) -> None:
        """Delete an object, and wait until what belongs to it is gone."""
        self.kube.ask("DELETE", self._path(kind, name, namespace), propagationPolicy="Foreground")
        deadline = time.monotonic() + REST_S
        while self.kube.ask("GET", self._path(kind, name, namespace)).code == 200:
            assert time.monotonic() < deadline, name
            time.sleep(0.02)

    def pods(self) -> list[Object]:
        return [p for p in self.listed("Pod") if "deletionTimestamp" not in p["metadata"]]

    def door(self, *, timeout_s: float = 20.0) -> KubeClient:
        del timeout_s
        return door_to(self.kube.url, ca=self.kube.ca, name="c")

    def listed(self, kind: str) -> list[Object]:
        """Return the objects of a kind in the namespace of the site."""
        found = self.kube.ask("GET", self._path(kind, "", SPACE))
        assert found.code == 200, found.body
        items: list[Object] = found.body["items"]
        return items

    def _busy(self) -> list[str]:
        found = [p["metadata"]["name"] for p in self.listed("Pod") if _moves(p)]
        return found + [d["metadata"]["name"] for d in self.listed("Deployment") if _rolls(d)]

    @staticmethod
    def _path(kind: str, name: str, namespace: str) -> str:
        one = _kinds()[kind]
        root = f"/apis/{one.api_version}" if one.group else f"/api/{one.api_version}"
        space = f"/namespaces/{namespace}" if one.namespaced else ""
        return f"{root}{space}/{one.plural}" + (f"/{name}" if name else "")


def _moves(pod: Object) -> bool:
    going = "deletionTimestamp" in pod["metadata"]
    unplaced = any(c.get("reason") == "Unschedulable" for c in pod["status"].get("conditions", ()))
    return going or (pod["status"]["phase"] == "Pending" and not unplaced)


def _rolls(deployment: Object) -> bool:
    meta, status = deployment["metadata"], deployment.get("status") or {}
    wanted = deployment["spec"]["replicas"]
    seen: bool = status.get("observedGeneration") == meta["generation"]
    return not seen or status.get("replicas", 0) != wanted


def prepared(server: RealServer) -> Kube:
    """Return a server with two nodes of many GPUs and the namespaces of a site."""
    kube = Kube("kube-apiserver", server.url, lambda _version: None, str(server.ca))
    for space in (SPACE, "fallow"):
        made = kube.ask("POST", "/api/v1/namespaces", {"metadata": {"name": space}})
        assert made.code == 201, made.body
    for name in NODES:
        # Without its times the server keeps no managed fields of the node.
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        times = {"lastHeartbeatTime": now, "lastTransitionTime": now}
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", **times}
        status = {"capacity": AMOUNTS, "allocatable": AMOUNTS, "conditions": [ready]}
        body = {"metadata": {"name": name}, "status": status}
        made = kube.ask("POST", "/api/v1/nodes", body)
        assert made.code == 201, made.body
    deadline = time.monotonic() + REST_S
    while any(_tainted(kube, name) for name in NODES):
        if time.monotonic() > deadline:
            raise FallowError("the node controller does not take the taint of new nodes away")
        time.sleep(0.05)
    return kube


def _tainted(kube: Kube, name: str) -> bool:
    body = kube.ask("GET", f"/api/v1/nodes/{name}").body
    return bool(body["spec"].get("taints"))


__all__ = ["ADMIN", "NODES", "RealSite", "prepared"]
