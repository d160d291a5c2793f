"""A cluster of quota objects to act on, over HTTP: the stand-in, or a real server where one is."""

import csv
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import urllib3

from actions.cluster.client import KubeClient
from actions.cluster.write_results import WriteResult
from actions.quota.executor import QuotaExecutor
from fallow.action_models import Decision, Intent
from fallow.kube.api import ApiConnection
from simulator.kube.server import KubeServer
from simulator.kube.store import ObjectStore
from tests.servers import kube_apiserver as real
from tests.servers.definitions import ROOT, build_definitions
from tests.servers.quota_webhooks import QUOTA_WEBHOOKS

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
MERGE = "application/merge-patch+json"
GPU = "nvidia.com/gpu"
GROUPS = {
    "kueue.x-k8s.io", "scheduling.volcano.sh", "scheduling.run.ai", "scheduling.x-k8s.io",
    "scheduling.sigs.k8s.io", "quota.koordinator.sh", "nos.nebuly.com",
}  # fmt: skip
Object = dict[str, Any]
_numbers = itertools.count()


@cache
def kinds() -> list[dict[str, str]]:
    text = files("simulator.kube").joinpath("resources.csv").read_text()
    return list(csv.DictReader(text.splitlines()))


class Site:
    """One server and the door to it; every test has names of its own."""

    def __init__(self, url: str, ca: str | None = None, store: ObjectStore | None = None) -> None:
        from kubernetes import client

        configuration = client.Configuration()
        configuration.host = url
        configuration.ssl_ca_cert = ca
        configuration.api_key = {"authorization": f"Bearer {real.ADMIN}"}
        self.door = KubeClient(ApiConnection(client.ApiClient(configuration)), "lab")
        self.store = store
        self._url, self._pool = url, urllib3.PoolManager(ca_certs=ca, retries=False)

    def define(self) -> None:
        """Serve the kinds of quota objects with their fields."""
        for body in build_definitions():
            if body["spec"]["group"] in GROUPS:
                self.ask("POST", ROOT, body, "application/json")

    def ask(self, method: str, path: str, body: Any = None, media: str = MERGE) -> Object:
        headers = {"Authorization": f"Bearer {real.ADMIN}", "Content-Type": media}
        data = None if body is None else json.dumps(body)
        answer = self._pool.request(method, self._url + path, body=data, headers=headers)
        assert answer.status < 300, answer.data
        found: Object = answer.json()
        return found

    def path(self, kind: str, group: str, namespace: str = "", name: str = "") -> str:
        root = self.door.collection(kind, group, namespace)
        assert root is not None, f"{kind} of {group} is not served"
        return f"{root}/{name}" if name else root

    def make(
        self, kind: str, group: str, name: str, spec: Any, status: Any = None, **meta: Any
    ) -> Object:
        """Create an object and then its status, as a controller would."""
        space = meta.get("namespace", "")
        if space:
            self.space(space)
        root = self.path(kind, group, space)
        version = root.split("/")[2] if not group else "/".join(root.split("/")[2:4])
        body = {"apiVersion": version, "kind": kind, "metadata": {"name": name, **meta}}
        made = self.ask(
            "POST", f"{root}?fieldValidation=Strict", {**body, "spec": spec}, "application/json"
        )
        if status is not None:
            # Koordinator's kinds have no subresource of it.
            apart = next(r["status"] for r in kinds() if (r["kind"], r["group"]) == (kind, group))
            path = f"{root}/{name}/status" if apart == "1" else f"{root}/{name}"
            made = self.ask("PATCH", path, {"status": status})
        return made

    def space(self, name: str) -> None:
        if self.door.get(f"/api/v1/namespaces/{name}") is None:
            self.ask("POST", "/api/v1/namespaces", {"metadata": {"name": name}}, "application/json")

    def clear(self) -> None:
        """Take away what the test before left."""
        for row in kinds():
            if row["group"] in GROUPS or row["kind"] == "ResourceQuota":
                for item in self.door.items(self.path(row["kind"], row["group"])):
                    space = item["metadata"].get("namespace", "")
                    name = item["metadata"]["name"]
                    self.ask("DELETE", self.path(row["kind"], row["group"], space, name))

    def send(self, intent: Intent) -> list[WriteResult]:
        """Write as the loop does: rehearse what can be, then one by one until one is refused."""
        for change in intent.changes:
            tried = None if change.depends else self.door.send(change, dry_run=True)
            if tried is not None and not tried.ok:
                return [tried]
        answers = []
        for change in intent.changes:
            answers.append(self.door.send(change, dry_run=False))
            if not answers[-1].ok:
                break
        return answers

    def undo(self, intent: Intent, done: int) -> list[WriteResult]:
        """Take back the first so many changes."""
        left = len(intent.undo) - done
        return [self.door.send(change, dry_run=False) for change in intent.undo[left:]]

    def bare(self) -> dict[str, Object]:
        """Return every quota object without what the server counts."""
        found = {}
        for row in kinds():
            if row["group"] in GROUPS or row["kind"] == "ResourceQuota":
                for item in self.door.items(self.path(row["kind"], row["group"])):
                    meta = dict(item["metadata"])
                    for counted in ("resourceVersion", "generation", "managedFields"):
                        meta.pop(counted, None)
                    found[f"{row['kind']}.{row['group']} {meta['name']}"] = {
                        **item,
                        "metadata": meta,
                    }
        return found


def decision(kind: str, moves: Sequence[Mapping[str, Any]], **more: Any) -> Decision:
    """Return an allowed rebalance: moves are (name, from, to), names with a / have a namespace."""
    flavor, rules = more.pop("flavor", ""), more.pop("rules", {})
    proposal = {"kind": kind, "resource": GPU, "flavor": flavor, "moves": moves, **more}
    parameters = {"proposal": proposal, "max_step": 1, **rules}
    subject = ("lab", "Quota", "", kind)
    return Decision(
        "d", "rebalance-quota", "f", subject, "rebalance-quota", "act", "allow", (), NOW,
        parameters=parameters,
    )  # fmt: skip


def move(name: str, before: float, after: float, **more: Any) -> dict[str, Any]:
    space, _, last = name.rpartition("/")
    return {"namespace": space, "object": last, "from_gpus": before, "to_gpus": after, **more}


def intend(site: Site, *args: Any, **more: Any) -> Intent:
    return QuotaExecutor().writes(decision(*args, max_step=1, floor_gpus=1, **more), site.door)


@contextmanager
def stand_in() -> Iterator[Site]:
    """Serve a store whose webhooks are those of the schedulers."""
    store = ObjectStore(NOW.timestamp)
    store.webhooks = QUOTA_WEBHOOKS
    with KubeServer(store) as server:
        site = Site(server.url, store=store)
        site.define()
        yield site


@contextmanager
def apiserver(folder: Path, home: Path) -> Iterator[Site]:
    """Run a real server with definitions of the same kinds; nobody's webhooks run there."""
    with real.serving(folder, home) as one:
        site = Site(one.url, str(one.ca))
        site.define()
        yield site
