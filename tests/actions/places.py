"""A Kubernetes API to act upon: the stand-in always, a real kube-apiserver where one is at hand."""

import itertools
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from actions.cluster.client import KubeClient
from fallow.action_models import Change, Intent
from fallow.kube.api import ApiConnection, BackOff
from simulator.kube.kinds import ApiKind, read_builtin_kinds
from simulator.kube.server import KubeServer
from simulator.kube.store import ObjectStore
from tests.servers import kube_apiserver as real
from tests.servers.definitions import ROOT, build_definitions
from tests.simulator.kube.conftest import Answer, Kube, until

Object = dict[str, Any]
CLUSTER = "sim"
MERGE = "application/merge-patch+json"
_spaces = itertools.count()
_KINDS = {k.key: k for k in read_builtin_kinds()}


def door(
    url: str,
    *,
    ca: str | None = None,
    token: str = real.ADMIN,
    name: str = CLUSTER,
    clock: Callable[[], float] = time.monotonic,
) -> KubeClient:
    """Return a door to a server, whose pauses are none."""
    from kubernetes import client

    configuration = client.Configuration(host=url)
    configuration.api_key["BearerToken"] = f"Bearer {token}"
    configuration.retries = False
    if ca is not None:
        configuration.ssl_ca_cert = ca
    pause = BackOff(sleep=lambda _: None)
    return KubeClient(
        ApiConnection(client.ApiClient(configuration), timeout_s=20, pause=pause), name, clock=clock
    )


class Place:
    """A namespace of a test's own on a server, and our door to it."""

    def __init__(self, kube: Kube, server: KubeServer | None) -> None:
        self.kube, self.server = kube, server
        self.name = f"a{next(_spaces)}"
        self.door = door(kube.url, ca=kube.ca)
        self.make("Namespace", {"metadata": {"name": self.name}})

    def kind(self, key: str) -> ApiKind:
        """Return a kind as `Job` or `Job.batch.volcano.sh`."""
        return _KINDS.get(key) or next(k for k in _KINDS.values() if k.kind == key)

    def path(self, key: str, name: str = "", part: str = "") -> str:
        kind = self.kind(key)
        root = f"/apis/{kind.api_version}" if kind.group else f"/api/{kind.api_version}"
        space = f"/namespaces/{self.name}" if kind.namespaced else ""
        return "/".join(w for w in (f"{root}{space}/{kind.plural}", name, part) if w)

    def make(self, key: str, body: Mapping[str, Any], *, status: Any = None) -> Object:
        """Create an object, and its status as a controller would write it."""
        kind = self.kind(key)
        whole = {"apiVersion": kind.api_version, "kind": kind.kind, **body}
        made = self.kube.ask("POST", self.path(key), whole, fieldValidation="Strict")
        assert made.code == 201, made.body
        if status is not None:
            self.patch(key, made.body["metadata"]["name"], {"status": status}, part="status")
        return self.get(key, made.body["metadata"]["name"]) or {}

    def patch(self, key: str, name: str, body: Any, part: str = "", **query: Any) -> Answer:
        path = self.path(key, name, part)
        answer = self.kube.ask("PATCH", path, body, media=MERGE, **query)
        assert answer.code == 200, answer.body
        return answer

    def get(self, key: str, name: str) -> Object | None:
        answer = self.kube.ask("GET", self.path(key, name))
        return answer.body if answer.code == 200 else None

    def send(self, *changes: Change, dry_run: bool = False) -> None:
        """Send changes one after the other, each with the version that its object has now."""
        for change in changes:
            answer = self.door.send(current(self.door, change), dry_run=dry_run)
            assert answer.ok, answer

    def holds(self, change: Change) -> bool:
        """Say whether what a change is to leave is there."""
        return says(self.door, change, change.becomes)


def says(reader: KubeClient, change: Change, wanted: Mapping[str, Any]) -> bool:
    """Say whether the object of a change shows these pointers; null = absent."""
    from actions.cluster.pointers import get_value  # noqa: PLC0415

    obj = reader.get(change.read or change.path)
    return all(get_value(obj, pointer) == value for pointer, value in wanted.items())


def current(reader: KubeClient, change: Change) -> Change:
    """Return a change with the version that its object has now, as the loop sends it."""
    import msgspec  # noqa: PLC0415

    if not change.guarded:
        return change
    obj = reader.get(change.read or change.path) or {}
    version = (obj.get("metadata") or {}).get("resourceVersion")
    target = msgspec.structs.replace(change.target, resource_version=version)
    return msgspec.structs.replace(change, target=target)


def bare(obj: Object | None) -> Object | None:
    """Return an object without what every write changes."""
    if obj is None:
        return None
    volatile = {"resourceVersion", "generation", "managedFields"}
    head = {k: v for k, v in obj["metadata"].items() if k not in volatile}
    return {**obj, "metadata": head}


def every_path(intent: Intent) -> list[str]:
    """Return the path of each write and each undo."""
    return [c.path for c in (*intent.changes, *intent.undo)]


@contextmanager
def serving(backend: str, folder: Path) -> Iterator[tuple[Kube, KubeServer | None]]:
    """Serve an API with every kind that we act upon."""
    if backend == "stand-in":
        store = ObjectStore(lambda: 1_790_000_000.0)
        with KubeServer(store) as server:
            server.access.users[real.NOBODY] = "nobody"
            server.access.deny("*", "*", user="nobody")
            kube = Kube("stand-in", server.url, store.history.forget)
            _define(kube)
            yield kube, server
        return
    with real.serving(real.require(), folder) as one:
        kube = Kube("kube-apiserver", one.url, lambda v: real.compact(one, v), str(one.ca))
        _define(kube)
        yield kube, None


def _define(kube: Kube) -> None:
    for body in build_definitions():
        made = kube.ask("POST", ROOT, body)
        assert made.code == 201, made.body
    for kind in _KINDS.values():
        if kind.custom:
            until(_served(kube, f"/apis/{kind.api_version}/{kind.plural}"))


def _served(kube: Kube, path: str) -> Callable[[], bool]:
    return lambda: kube.ask("GET", path).code == 200
