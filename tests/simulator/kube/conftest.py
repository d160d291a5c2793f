"""A Kubernetes API to ask: the stand-in always, a real kube-apiserver where one is at hand.

One server for the whole session, a namespace of its own for each test.
"""

import itertools
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any
from urllib.parse import urlencode

import pytest
import urllib3

from simulator.kube.server import KubeServer
from simulator.kube.store import ObjectStore
from tests.servers import kube_apiserver as real

Object = dict[str, Any]
MERGE = "application/merge-patch+json"
JSON = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
_spaces = itertools.count()


class Answer:
    """A code, a body and headers."""

    def __init__(self, response: urllib3.BaseHTTPResponse) -> None:
        self.code, self.headers = response.status, response.headers
        self.raw = response.data
        self.body: Object = json.loads(self.raw) if self.raw[:1] in {b"{", b"["} else {}

    @property
    def version(self) -> str:
        return str(self.body["metadata"]["resourceVersion"])


class Kube:
    """One server, asked over HTTP as anybody would."""

    def __init__(
        self, name: str, url: str, compact: Callable[[int], None], ca: str | None = None
    ) -> None:
        self.name, self.url, self.ca = name, url, ca
        self.compact = compact
        self.pool = urllib3.PoolManager(ca_certs=ca, retries=False)

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        media: str = "application/json",
        accept: str = "application/json",
        token: str = real.ADMIN,
        **query: Any,
    ) -> Answer:
        """Send one request."""
        headers = {"Accept": accept, "Authorization": f"Bearer {token}"}
        data = None
        if body is not None:
            headers["Content-Type"] = media
            data = json.dumps(body).encode()
        fields = [(k, str(v)) for k, v in query.items()]
        url = self.url + path + ("?" + _query(fields) if fields else "")
        return Answer(self.pool.request(method, url, body=data, headers=headers))

    def watch(self, path: str, count: int, **query: Any) -> list[Object]:
        """Return the first `count` things that a watch says, fewer if it ends before."""
        fields = [("watch", "true"), ("timeoutSeconds", "10"), *query.items()]
        headers = {"Authorization": f"Bearer {real.ADMIN}"}
        url = f"{self.url}{path}?{_query(fields)}"
        answer = self.pool.request("GET", url, headers=headers, preload_content=False)
        assert answer.status == 200, answer.data
        events: list[Object] = []
        rest = b""
        for chunk in answer.stream():
            *lines, rest = (rest + chunk).split(b"\n")
            events += map(json.loads, lines)
            if len(events) >= count:
                break
        answer.close()
        return events


def _query(fields: Sequence[tuple[str, Any]]) -> str:
    return urlencode(fields)


class Space:
    """A namespace of a test's own, and the collections in it."""

    def __init__(self, kube: Kube, name: str) -> None:
        self.kube, self.name = kube, name
        self.ask = kube.ask

    def path(self, plural: str, name: str = "", part: str = "", group: str = "v1") -> str:
        root = f"/api/{group}" if "/" not in group else f"/apis/{group}"
        words = [f"{root}/namespaces/{self.name}/{plural}", name, part]
        return "/".join(w for w in words if w)

    def pod(self, name: str = "p", *, running: bool = False, **more: Any) -> Object:
        """Create a pod with GPUs; a running one is on a node and ready."""
        made = self.ask("POST", self.path("pods"), pod(name, **more))
        assert made.code == 201, made.body
        if running:
            ready = {"type": "Ready", "status": "True"}
            status = {"status": {"phase": "Running", "conditions": [ready]}}
            made = self.ask("PATCH", self.path("pods", name, "status"), status, media=STRATEGIC)
            assert made.code == 200, made.body
        return made.body

    def create(self, plural: str, item: Object, group: str = "v1", **query: Any) -> Answer:
        return self.ask("POST", self.path(plural, group=group), item, **query)

    def patch(
        self,
        plural: str,
        name: str,
        body: Any,
        *,
        group: str = "v1",
        part: str = "",
        media: str = MERGE,
        **query: Any,
    ) -> Answer:
        path = self.path(plural, name, part, group)
        return self.ask("PATCH", path, body, media=media, **query)

    def get(self, plural: str, name: str, part: str = "", group: str = "v1") -> Answer:
        return self.ask("GET", self.path(plural, name, part, group))


def pod(
    name: str = "p",
    *,
    limits: Mapping[str, str] | None = None,
    requests: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    **spec: Any,
) -> Object:
    """Return a pod as somebody would post it."""
    resources: Object = {"limits": dict(limits if limits is not None else {"nvidia.com/gpu": "2"})}
    if requests is not None:
        resources["requests"] = dict(requests)
    main = {"name": "main", "image": "busybox", "resources": resources}
    return {
        "metadata": {"name": name, "labels": dict(labels or {"app": "x"})},
        "spec": {"containers": [main], **spec},
    }


def replicated(name: str = "web", replicas: int | None = None) -> Object:
    """Return the body of a Deployment or StatefulSet with a side-car."""
    labels = {"app": name}
    containers = [{"name": "main", "image": "a"}, {"name": "side", "image": "b"}]
    spec: Object = {
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": containers}},
    }
    if replicas is not None:
        spec["replicas"] = replicas
    return {"metadata": {"name": name}, "spec": spec}


def definition(
    group: str, kind: str, *, scale: str = "", scope: str = "Namespaced", version: str = "v1"
) -> Object:
    """Return a CustomResourceDefinition that takes any field."""
    plural = kind.lower() + "s"
    parts: Object = {"status": {}}
    if scale:
        parts["scale"] = {"specReplicasPath": scale, "statusReplicasPath": ".status.replicas"}
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{plural}.{group}",
            "annotations": {"api-approved.kubernetes.io": "unapproved, a test"},
        },
        "spec": {
            "group": group,
            "scope": scope,
            "names": {"plural": plural, "kind": kind, "singular": kind.lower()},
            "versions": [
                {
                    "name": version,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                    "subresources": parts,
                }
            ],
        },
    }


@pytest.fixture(
    scope="session",
    params=real.BACKENDS,
)
def kube(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Kube]:
    """Return a server; it knows Notebooks, PyTorchJobs and NodePools."""
    if request.param == "stand-in":
        store = ObjectStore(lambda: 1_790_000_000.0, installed=())
        with KubeServer(store) as server:
            server.access.users[real.NOBODY] = "nobody"
            server.access.deny("*", "*", user="nobody")
            found = Kube("stand-in", server.url, store.history.forget)
            _install(found)
            yield found
        return
    with real.serving(real.require(), tmp_path_factory.mktemp("kube")) as one:
        found = Kube("kube-apiserver", one.url, lambda v: real.compact(one, v), str(one.ca))
        _install(found)
        yield found


def _install(kube: Kube) -> None:
    worker = ".spec.pytorchReplicaSpecs.Worker.replicas"
    kinds = (
        definition("kubeflow.org", "Notebook"),
        definition("kubeflow.org", "PyTorchJob", scale=worker),
        definition("karpenter.sh", "NodePool", scale=".spec.replicas", scope="Cluster"),
    )
    for item in kinds:
        made = kube.ask("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", item)
        assert made.code == 201, made.body
        group, plural = item["spec"]["group"], item["spec"]["names"]["plural"]
        until(partial(_served, kube, f"/apis/{group}/v1/{plural}"))


def _served(kube: Kube, path: str) -> bool:
    return kube.ask("GET", path).code == 200


def until(true: Callable[[], bool]) -> None:
    """Ask again until it is so: a real server serves a new kind a moment later."""
    deadline = time.monotonic() + 20
    while not true():
        assert time.monotonic() < deadline


@pytest.fixture
def space(kube: Kube) -> Space:
    """Return a namespace of this test's own."""
    name = f"t{next(_spaces)}"
    assert kube.ask("POST", "/api/v1/namespaces", {"metadata": {"name": name}}).code == 201
    return Space(kube, name)
