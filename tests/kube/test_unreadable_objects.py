"""One object that cannot be read costs itself: the rows of all others are equal to the byte."""

import copy
import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from analyzers.protections import read_vetoes
from collectors.kube.dump import import_kubectl
from fallow.protections import UNREADABLE
from tests.kube.conftest import Cluster, Look
from tests.kube.objects import Object, meta, node, pod

GPU = {"nvidia.com/gpu": "1"}
DEEP = "DEEP"
GARBAGE: tuple[Any, ...] = (
    None,
    True,
    5,
    -1,
    1.5,
    10**30,
    "",
    "x",
    "9E",
    "1e999",
    "9" * 5000,
    "\u00b2",
    "\0",
    "\ud800",
    "9999-12-31T23:59:59-14:00",
    [],
    [5],
    ["x"],
    {},
    {"x": 5},
    {"x": {"x": []}},
    [[]],
    [None],
    DEEP,
)
HAMI = "hami.io/vgpu-devices-allocated"
LISTS = {
    "Node": ("/api/v1", "nodes"),
    "Pod": ("/api/v1", "pods"),
}


def of(api: str, kind: str, name: str, **parts: Any) -> Object:
    return {"apiVersion": api, "kind": kind, **meta(name), **parts}


def kinds(name: str) -> list[Object]:
    """Return an object of each kind, with every field that Fallow reads."""
    time = "2026-11-20T08:00:00Z"
    term = {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}
    near = [{"topologyKey": "z", "labelSelector": {"matchLabels": {"a": "b"}}, "namespaces": ["n"]}]
    there = node(
        f"n-{name}",
        capacity={"nvidia.com/gpu": "8"},
        labels={"nvidia.com/gpu.count": "8", "nvidia.com/gpu.replicas": "2"},
        annotations={"hami.io/node-nvidia-register": '[{"id":"G","count":10,"devmem":81920}]'},
        taints=[{"key": "a", "value": "b", "effect": "NoSchedule"}],
        providerID="aws:///a/i-1",
        unschedulable=False,
    )
    there["status"]["addresses"] = [{"type": "InternalIP", "address": "10.0.0.9"}]
    mine = pod(
        f"dcgm-exporter-{name}",
        namespace=name,
        limits={**GPU, "cpu": "1", "memory": "1Gi"},
        owner=("apps/v1", f"ReplicaSet/{name}"),
        labels={"runai-gpu-group": name, "team": "t"},
        annotations={
            HAMI: "G-1,N,100,50:;",
            "gpu-fraction": "0.5",
            "gpu-memory": "10",
            "gpu-fraction-num-devices": "1",
            "fallow.dev/keep-until": time,
            "run.ai/reserve_for_gpu_index": "-1",
            "scheduling.k8s.io/group-name": name,
        },
        affinity={
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}
            },
            "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": near},
        },
        nodeSelector={"a": "b"},
        tolerations=[{"key": "a", "operator": "Exists"}],
        overhead={"cpu": "1m"},
        resources={"requests": {"cpu": "2"}},
        priority=5,
        volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}, {"emptyDir": {}}],
        topologySpreadConstraints=[{"topologyKey": "z", "maxSkew": 1}],
        initContainers=[{"name": "i", "restartPolicy": "Always", "ports": [{"hostPort": 5}]}],
    )
    mine["status"]["podIP"] = "10.0.0.8"
    mine["status"]["containerStatuses"] = [
        {
            "name": "main",
            "restartCount": 1,
            "state": {"terminated": {"exitCode": 1, "finishedAt": time, "message": "m"}},
            "lastState": {"waiting": {"reason": "r"}},
        }
    ]
    sets = [{"name": "s", "count": 1, "template": {"spec": mine["spec"]}}]
    flavor = {"name": "f", "resources": [{"name": "nvidia.com/gpu", "nominalQuota": "8"}]}
    kueue, volcano, kai = "kueue.x-k8s.io/v1beta1", "scheduling.volcano.sh/v1", "scheduling.run.ai"
    condition = {"type": "QuotaReserved", "status": "False", "lastTransitionTime": time}
    devices = [{"name": "d", "attributes": {"uuid": {"string": f"GPU-{name}"}}}]
    result = {"driver": "g", "pool": name, "device": "d"}
    return [
        there,
        mine,
        {**of("v1", "Namespace", name), "metadata": {"name": name, "labels": {"team": "t"}}},
        of("apps/v1", "ReplicaSet", name),
        of(
            "v1",
            "ResourceQuota",
            name,
            spec={"hard": {"requests.nvidia.com/gpu": "8"}},
            status={"used": {"requests.nvidia.com/gpu": "1"}},
        ),
        of(
            "policy/v1",
            "PodDisruptionBudget",
            name,
            spec={"selector": {}, "maxUnavailable": 1},
            status={"disruptionsAllowed": 1, "currentHealthy": 3},
        ),
        of(
            "v1",
            "Event",
            name,
            involvedObject={"kind": "Pod", "name": name, "uid": name},
            reason="BackOff",
            message="m",
            count=2,
            lastTimestamp=time,
            series={"count": 4},
        ),
        of(
            "resource.k8s.io/v1",
            "ResourceSlice",
            name,
            spec={
                "driver": "g",
                "pool": {"name": name, "generation": 1},
                "nodeName": f"n-{name}",
                "devices": devices,
            },
        ),
        of(
            "resource.k8s.io/v1",
            "ResourceClaim",
            name,
            status={
                "reservedFor": [{"resource": "pods", "name": name, "uid": f"pod-{name}"}],
                "allocation": {"devices": {"results": [result]}},
            },
        ),
        of(
            kueue,
            "ClusterQueue",
            name,
            spec={"cohortName": name, "resourceGroups": [{"flavors": [flavor]}]},
            status={"pendingWorkloads": 1, "flavorsUsage": [flavor]},
        ),
        of(kueue, "Cohort", name, spec={"parentName": "p", "resourceGroups": []}),
        of(kueue, "LocalQueue", name, spec={"clusterQueue": name}, status={"pendingWorkloads": 1}),
        of(
            kueue,
            "ResourceFlavor",
            name,
            spec={"nodeLabels": {"a": "b"}, "nodeTaints": [{"key": "a", "effect": "NoSchedule"}]},
        ),
        of(
            kueue,
            "Workload",
            name,
            spec={"queueName": name, "podSets": sets, "priority": 1},
            status={"conditions": [condition]},
        ),
        of(
            volcano,
            "Queue",
            name,
            spec={"deserved": GPU, "capability": GPU},
            status={"allocated": GPU, "pending": 1},
        ),
        of(
            volcano,
            "PodGroup",
            name,
            spec={"queue": name, "minMember": 1, "minResources": GPU},
            status={"phase": "Pending"},
        ),
        of(
            f"{kai}/v2",
            "Queue",
            name,
            spec={"resources": {"gpu": {"quota": 8, "limit": -1}}},
            status={"allocated": GPU, "requested": GPU},
        ),
        of(
            "scheduling.x-k8s.io/v1alpha1",
            "ElasticQuota",
            name,
            spec={"min": GPU, "max": GPU},
            status={"used": GPU},
        ),
    ]


def list_places(value: Any, *path: Any) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every field."""
    if not isinstance(value, (dict, list)):
        return
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
        yield (*path, key)
        yield from list_places(inner, *path, key)


def put(item: Object, path: tuple[Any, ...], value: Any) -> Object:
    """Return the object with another value at a path."""
    changed = copy.deepcopy(item)
    place: Any = changed
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return changed


def encode(items: list[Object]) -> bytes:
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    return text.replace(f'"{DEEP}"', "[" * 5000 + "]" * 5000).encode()


def import_rows(path: Path, items: list[Object], now: datetime) -> dict[str, list[dict[str, Any]]]:
    path.write_bytes(encode(items))
    rows: dict[str, list[dict[str, Any]]] = {}
    for batch in import_kubectl(path, "c", now):
        rows.setdefault(batch.table, []).extend(batch.rows.to_pylist())
    return rows


def select_honest(rows: dict[str, list[dict[str, Any]]]) -> dict[str, list[str]]:
    """Return the rows of the objects whose name is honest, as text.

    A waiting Workload's row lists the flavors of its whole cluster: the legal ones of the others.
    """
    texts_by_table: dict[str, list[str]] = {}
    for table, listed in rows.items():
        for row in listed:
            if row.get("request"):
                row["request"] = {**json.loads(row["request"]), "flavors": None}
            if any("honest" in str(row.get(key)) for key in ("name", "pod", "node")):
                texts_by_table.setdefault(table, []).append(repr(row))
    return {
        table: texts
        for table, texts in texts_by_table.items()
        if table not in {"scrape", "rejection"}
    }


EVIL = kinds("evil")
FIELDS = [
    pytest.param(item, id=f"{item['kind']}-{item['apiVersion'].partition('/')[0]}") for item in EVIL
]


@pytest.mark.parametrize("item", FIELDS)
def test_garbage_in_a_field_costs_no_other_object(
    item: Object, tmp_path: Path, now: datetime
) -> None:
    first, last = kinds("honest-1"), kinds("honest-2")
    path = tmp_path / "dump.json"
    expected = select_honest(import_rows(path, [*first, *last], now))
    assert len(expected["pod"]) == len(expected["node"]) == 2
    places = list(list_places(item))
    for number, place in enumerate(places):
        if place[0] in {"apiVersion", "kind"}:
            continue
        # Every field meets a third of the garbage: all of it would take a minute more.
        values = GARBAGE[number % 3 :: 3]
        hostile = [
            put(put(item, place, v), ("metadata", "generation"), i)
            if place[0] != "metadata"
            else put(item, place, v)
            for i, v in enumerate(values)
        ]
        rows = select_honest(import_rows(path, [*first, *hostile, *last], now))
        assert rows == expected, (place, values)


HOSTILE = {
    "hami": {"annotations": {HAMI: "GPU-1,N,1e308,100:"}, "limits": GPU},
    "fraction": {"annotations": {"gpu-fraction": "1e999"}},
    "digits": {"annotations": {"gpu-fraction": "9" * 5000}},
    "memory": {"annotations": {"gpu-memory": "1e18"}},
    "cpu 9E": {"limits": {"cpu": "9E"}},
    "memory 8Ei": {"limits": {"memory": "8Ei"}},
    "gpus 9E": {"limits": {"nvidia.com/gpu": "9E"}},
}
"""What a real kube-apiserver 1.36 stores of anybody who may create a pod."""


@pytest.mark.parametrize("parts", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_pod_is_stored_listed_and_protected(
    cluster: Cluster, poll: Look, parts: dict[str, Any]
) -> None:
    cluster.put("Node", node(capacity={"nvidia.com/gpu": "8"}))
    for name in ("a", "z"):
        cluster.put("Pod", pod(name, limits=GPU))
    cluster.put("Pod", pod("evil", owner=("batch/v1", "Job/j"), **parts))
    rows = poll()
    pods = {row["pod"]: row for row in rows["pod"]}
    assert set(pods) == {"a", "evil", "z"}
    assert read_vetoes(pods["evil"]["annotations"], None) == (True, False)
    assert read_vetoes(pods["a"]["annotations"], None) == (False, False)
    (listed,) = rows["rejection"]
    identity = [listed[key] for key in ("kind", "namespace", "name", "node")]
    assert identity == ["pod", "ml", "evil", "n0"]
    assert "no amount" in listed["reason"]


def test_a_page_with_an_unreadable_object_is_read(cluster: Cluster, poll: Look) -> None:
    broken = pod("evil")
    broken["status"]["phase"] = 5
    cluster.put("Pod", broken)
    cluster.put("Pod", pod("a"))
    rows = poll()
    assert {row["pod"]: row["phase"] for row in rows["pod"]} == {"a": "Running", "evil": None}
    assert all(row["up"] for row in rows["scrape"])


def test_bare_keys_of_a_pod_are_not_fallows_own(cluster: Cluster, poll: Look) -> None:
    marks = {
        "fallow.selector": "x", "fallow.tolerations": "y", "fallow.holds_for": "z",
        UNREADABLE: "me", "fallow.dev/keep": "yes" + " " * 9000, "fallow.dev/slo": "9" * 9000,
        "fallow.dev/kepe": "true",
    }  # fmt: skip
    cluster.put("Pod", pod("a", limits=GPU, annotations=marks))
    (row,) = poll()["pod"]
    assert json.loads(row["annotations"]) == {
        "fallow.dev/keep": "yes",
        "fallow.dev/kepe": "",
        "fallow.dev/slo": "",
    }
