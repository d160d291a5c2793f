"""Collecting reads nothing that the reader's role does not name."""

from typing import Any

from actions.reclaim.kinds import read_kinds
from runtime.operations.acting.access_review import list_reader_rights
from simulator.kube.kinds import read_builtin_kinds
from simulator.kube.paths import parse_path
from simulator.kube.server import KubeServer
from tests.kube.objects import Object, node, pod

OWNERS = {(k.group, k.api_kind) for k in read_kinds().values() if k.group} | {
    ("apps", "ReplicaSet"),
    ("apps", "DaemonSet"),
}


def _owned(name: str, kind: str, api: str) -> Object:
    item = pod(name, limits={"nvidia.com/gpu": "1"})
    reference = {"apiVersion": api, "kind": kind, "name": name, "uid": f"{kind.lower()}-{name}"}
    item["metadata"]["ownerReferences"] = [{**reference, "controller": True}]
    return item


def test_every_request_of_a_collection_is_within_the_readers_role(cluster: Any, look: Any) -> None:
    cluster.put("Node", node(capacity={"nvidia.com/gpu": "8"}))
    for kind in read_builtin_kinds():
        if kind.custom:
            cluster.store.catalog.serve(kind)
        if (kind.group, kind.kind) in OWNERS:
            name = f"x-{kind.plural}"
            owner = {"metadata": {"name": name, "namespace": "ml"}, "spec": {}}
            cluster.put(kind.key, {"apiVersion": kind.api_version, "kind": kind.kind, **owner})
            cluster.put("Pod", _owned(name, kind.kind, kind.api_version))

    rows = look()

    granted = {(r.group, r.resource, v) for r in list_reader_rights() for v in r.verbs}
    assert rows["pod"]
    assert _asked(cluster) <= granted, sorted(_asked(cluster) - granted)


def _asked(cluster: KubeServer) -> set[tuple[str, str, str]]:
    found = set()
    for request in cluster.requests:
        parts = [p for p in request.path.split("/") if p]
        if len(parts) <= 3 and parts[0] == "apis" or len(parts) <= 2:  # noqa: RUF021  (discovery)
            continue
        about = parse_path(cluster.store.catalog, request.path)
        verb = "get" if about.name else "list"
        found.add((about.kind.group, about.resource, verb))
    return found
