"""One share of a physical GPU by every path: a dump, two, series, a claim, an action."""

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from actions.cluster.allocations import count_allocated_gpus
from collectors.inventory import PART
from collectors.kube.dump import import_kubectl
from collectors.prometheus.kube_state import KubeState, build_node_rows, build_pod_rows
from tests.kube.objects import Object, node, pod

NOW = datetime(2026, 11, 20, tzinfo=UTC)
A100 = "NVIDIA-A100-SXM4-40GB"
SLICING = {"nvidia.com/gpu.replicas": "4", "nvidia.com/gpu.sharing-strategy": "time-slicing"}
FIVE_XLARGE = {"node.kubernetes.io/instance-type": "g5.xlarge"}
DPX = "gpu-32-160"
# capacity of the node, its labels, request of the pod; GPUs of the node, of the pod
EXTENDED = {
    "whole": ({"nvidia.com/gpu": 8}, {}, {"nvidia.com/gpu": 2}, 8, Fraction(2)),
    "sliced, labelled": ({"nvidia.com/gpu": 8}, SLICING, {"nvidia.com/gpu": 1}, 2, Fraction(1, 4)),
    "sliced, replicas only": (
        {"nvidia.com/gpu": 8},
        {"nvidia.com/gpu.replicas": "4"},
        {"nvidia.com/gpu": 1},
        2,
        Fraction(1, 4),
    ),
    "sliced, by the catalogue": (
        {"nvidia.com/gpu": 4},
        FIVE_XLARGE,
        {"nvidia.com/gpu": 1},
        1,
        Fraction(1, 4),
    ),
    "renamed": (
        {"nvidia.com/gpu.shared": 50},
        {"nvidia.com/gpu.count": "1", "nvidia.com/gpu.replicas": "1"},
        {"nvidia.com/gpu.shared": 1},
        1,
        Fraction(1, 50),
    ),
    "instances": (
        {"nvidia.com/mig-1g.5gb": 14},
        {"nvidia.com/gpu.count": "2"},
        {"nvidia.com/mig-1g.5gb": 2},
        2,
        Fraction(2, 7),
    ),
    "instances of an A30": (
        {"nvidia.com/mig-1g.6gb": 4},
        {},
        {"nvidia.com/mig-1g.6gb": 1},
        1,
        Fraction(1, 4),
    ),
    "instances, shared": (
        {"nvidia.com/mig-1g.5gb.shared": 28},
        {"nvidia.com/mig-1g.5gb.replicas": "4"},
        {"nvidia.com/mig-1g.5gb.shared": 1},
        1,
        Fraction(1, 28),
    ),
    "instances, single strategy": (
        {"nvidia.com/gpu": 14},
        {"nvidia.com/gpu.product": f"{A100}-MIG-1g.5gb", "nvidia.com/mig.strategy": "single"},
        {"nvidia.com/gpu": 2},
        2,
        Fraction(2, 7),
    ),
    "instances of GKE, shared": (
        {"nvidia.com/gpu": 14},
        {
            "cloud.google.com/gke-accelerator": "nvidia-tesla-a100",
            "cloud.google.com/gke-gpu-partition-size": "1g.5gb",
            "cloud.google.com/gke-gpu-sharing-strategy": "time-sharing",
            "cloud.google.com/gke-max-shared-clients-per-gpu": "2",
        },
        {"nvidia.com/gpu": 1},
        1,
        Fraction(1, 14),
    ),
    "partitions": ({"amd.com/dpx_nps1": 16}, {}, {"amd.com/dpx_nps1": 1}, 8, Fraction(1, 2)),
}


def build_extended(name: str) -> tuple[list[Object], int, Fraction]:
    capacity, labels, request, gpus, share = EXTENDED[name]
    amounts = {key: str(value) for key, value in capacity.items()}
    limits = {key: str(value) for key, value in request.items()}
    return [node(capacity=amounts, labels=labels), pod(limits=limits)], gpus, share


def build_claimed(kind: str, users: int) -> tuple[list[Object], int, Fraction]:
    """Return a node with one board in two devices, and pods that share a claim of one of them."""
    text = (
        {"uuid": "MIG-1", "parentUUID": "GPU-1", "profile": "3g.20gb"}
        if kind == "gpu.nvidia.com"
        else {"parentPciAddr": "0003:00:01.0", "partitionProfile": "dpx_nps1"}
    )
    devices = [
        {"name": name, "basic": {"attributes": {k: {"string": v} for k, v in each.items()}}}
        for name, each in ((DPX, text), ("other", {**text, "uuid": "MIG-2"} if users else {}))
    ]
    pool = {"name": "n0", "generation": 1}
    head = {"apiVersion": "resource.k8s.io/v1beta1", "kind": "ResourceSlice"}
    spec = {"driver": kind, "nodeName": "n0", "pool": pool, "devices": devices}
    pods = [
        pod(f"p{i}", resourceClaims=[{"name": "g", "resourceClaimName": "claim"}])
        for i in range(users)
    ]
    reserved = [{"resource": "pods", "uid": p["metadata"]["uid"]} for p in pods]
    result = {"driver": kind, "pool": "n0", "device": DPX}
    claim = {
        **head,
        "kind": "ResourceClaim",
        "metadata": {"name": "claim", "namespace": "ml"},
        "status": {"allocation": {"devices": {"results": [result]}}, "reservedFor": reserved},
    }
    share = Fraction(3, 7) if kind == "gpu.nvidia.com" else Fraction(1, 2)
    sliced = {**head, "metadata": {"name": "s"}, "spec": spec}
    return [node(), *pods, sliced, claim], 1, share / users


def read_dumps(folder: Path, objects: Sequence[Object], *, several: bool) -> dict[str, Any]:
    """Return the rows of the last dump; of several dumps, all are of the same objects."""
    rows: dict[str, Any] = {}
    for k in range(1 + several):
        path = folder / f"{k}.json"
        path.write_text(json.dumps({"kind": "List", "items": list(objects)}))
        for batch in import_kubectl(path, "c", NOW):
            if batch.table in ("node", "pod"):
                rows[batch.table] = batch.rows.to_pylist()[0]
    return rows


def spell(name: str) -> str:
    return "".join(c if c.isalnum() else "_" for c in name)


def read_series(objects: Sequence[Object]) -> dict[str, Any]:
    """Return the rows of what kube-state-metrics shows of the objects."""
    held, holder = objects[0], objects[1]
    labels = {f"label_{spell(k)}": v for k, v in held["metadata"]["labels"].items()}
    limits = holder["spec"]["containers"][0]["resources"]["limits"]
    place = {"namespace": "ml", "pod": "p0", "uid": "pod-p0"}
    inits = holder["spec"].get("initContainers", ())
    state = KubeState(
        {
            "kube_node_info": [({"node": "n0"}, 1.0)],
            "kube_node_labels": [({"node": "n0", **labels}, 1.0)],
            "kube_node_status_capacity": [
                ({"node": "n0", "resource": spell(k)}, float(v))
                for k, v in held["status"]["capacity"].items()
                if k not in ("cpu", "memory")
            ],
            "kube_pod_info": [({**place, "node": "n0"}, 1.0)],
            "kube_pod_container_resource_requests": [
                ({**place, "container": "c", "node": "n0", "resource": spell(k)}, float(v))
                for k, v in limits.items()
            ],
            "kube_pod_init_container_resource_requests": [
                ({**place, "container": c["name"], "node": "n0", "resource": spell(k)}, float(v))
                for c in inits
                for k, v in c["resources"]["limits"].items()
            ],
            "kube_pod_init_container_info": [
                ({**place, "container": c["name"], "restart_policy": c["restartPolicy"] or ""}, 1.0)
                for c in inits
            ],
        },
        {},
        {},
    )
    nodes = list(build_node_rows(state, cluster="c", now=NOW))
    parts = {n["node"]: n[PART] for n in nodes}
    pods = build_pod_rows(state, cluster="c", now=NOW, team_labels=(), parts=parts)
    return {"node": nodes[0], "pod": next(iter(pods))}


class Reader:
    """The API's read side over a list of objects."""

    def __init__(self, objects: Iterable[Object]) -> None:
        self._objects = list(objects)

    def get(self, _path: str) -> Object:
        return self._objects[0]

    def items(self, path: str, **_selectors: str) -> list[Object]:
        return [o for o in self._objects if o["kind"] == path]

    def collection(self, kind: str, *_place: str) -> str:
        return kind


def count_of_action(objects: Sequence[Object]) -> float:
    pods = [o for o in objects if o["kind"] == "Pod"]
    return count_allocated_gpus(pods, Reader(objects))["pod-p0"]  # type: ignore[arg-type]


@pytest.mark.parametrize("name", EXTENDED)
@pytest.mark.parametrize("path", ["dump", "two dumps", "series"])
def test_an_extended_resource_is_the_same_share_by_every_path(
    name: str, path: str, tmp_path: Path
) -> None:
    objects, gpus, share = build_extended(name)
    rows = (
        read_series(objects)
        if path == "series"
        else read_dumps(tmp_path, objects, several=path == "two dumps")
    )
    assert rows["node"]["gpu_count"] == gpus
    assert rows["pod"]["gpu_request"] == pytest.approx(float(share))
    assert count_of_action(objects) == pytest.approx(float(share))


@pytest.mark.parametrize("restart_policy", ["Always", None])
def test_gpus_of_init_containers_and_sidecars_count_by_every_path(
    restart_policy: str | None, tmp_path: Path
) -> None:
    amounts = {"nvidia.com/gpu": "2"}
    init = {"name": "agent", "resources": {"limits": amounts}, "restartPolicy": restart_policy}
    holder = pod(limits={"nvidia.com/gpu": "1"}, initContainers=[init])
    objects = [node(capacity={"nvidia.com/gpu": "8"}), holder]
    share = 3 if restart_policy else 2
    for rows in (read_dumps(tmp_path, objects, several=False), read_series(objects)):
        assert rows["pod"]["gpu_request"] == share
    assert count_of_action(objects) == share


@pytest.mark.parametrize("users", [1, 2])
@pytest.mark.parametrize("kind", ["gpu.nvidia.com", "gpu.amd.com"])
def test_a_claim_is_the_same_share_by_every_path(kind: str, users: int, tmp_path: Path) -> None:
    objects, gpus, share = build_claimed(kind, users)
    rows = read_dumps(tmp_path, objects, several=False)
    assert rows["node"]["gpu_count"] == gpus
    assert rows["pod"]["gpu_request"] == pytest.approx(float(share))
    assert count_of_action(objects) == pytest.approx(float(share))
