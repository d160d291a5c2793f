"""kubectl dumps: the same rows without a server, and every wrong file refused in words."""

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from collectors.kube.dump import import_kubectl
from fallow.errors import UsageError
from tests.kube.objects import Object, meta, node, pod

GPU = {"nvidia.com/gpu": "2"}


def listed(*items: Object) -> bytes:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items}).encode()


def read(path: Path, data: bytes, now: datetime) -> dict[str, list[dict[str, Any]]]:
    path.write_bytes(data)
    rows: dict[str, list[dict[str, Any]]] = {}
    for batch in import_kubectl(path, "c", now):
        rows.setdefault(batch.table, []).extend(batch.rows.to_pylist())
    return rows


def test_a_dump_of_nodes_and_pods_becomes_rows(tmp_path: Path, now: datetime) -> None:
    pending = pod("waits", limits=GPU, node="", phase="Pending")
    labels = {"pod-template-hash": "abc"}
    web = pod("web", limits=GPU, owner=("apps/v1", "ReplicaSet/web-abc"), labels=labels)
    lone = pod("lone", owner=("batch/v1", "Job/j"))
    rows = read(
        tmp_path / "d.json",
        listed(node(capacity={"nvidia.com/gpu": "8"}), pending, web, lone),
        now,
    )
    assert [(r["node"], r["gpu_count"]) for r in rows["node"]] == [("n0", 8)]
    found = {r["pod"]: r for r in rows["pod"]}
    assert (found["waits"]["phase"], found["waits"]["gpu_request"]) == ("Pending", 2)
    assert found["waits"]["node"] is None
    assert (found["web"]["workload_kind"], found["web"]["workload"]) == ("Deployment", "web")
    assert (found["lone"]["workload_kind"], found["lone"]["owner_kind"]) == (None, "Job")
    (sample,) = rows["scrape"]
    assert (sample["collector"], sample["up"], sample["samples"]) == ("kubectl", True, 4)


def test_owners_in_the_dump_are_climbed(tmp_path: Path, now: datetime) -> None:
    job = {"apiVersion": "batch/v1", "kind": "Job", **meta("j", owner=("batch/v1", "CronJob/c"))}
    cron = {"apiVersion": "batch/v1", "kind": "CronJob", **meta("c")}
    for item in (job, cron):
        item["metadata"]["uid"] = f"{item['kind'].lower()}-{item['metadata']['name']}"
    rows = read(tmp_path / "d", listed(pod(owner=("batch/v1", "Job/j")), job, cron), now)
    assert (rows["pod"][0]["workload_kind"], rows["pod"][0]["workload"]) == ("CronJob", "c")


def test_disruption_budgets_of_a_dump_become_rows(tmp_path: Path, now: datetime) -> None:
    spec = {"selector": {}, "maxUnavailable": 2}
    item = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", **meta("b"), "spec": spec}
    (found,) = read(tmp_path / "d", listed(pod(), item), now)["disruption_budget"]
    answer = [found[name] for name in ("namespace", "name", "selector", "max_unavailable")]
    assert answer == ["ml", "b", "{}", "2"]


def test_typed_lists_and_powershells_encoding_are_read(tmp_path: Path, now: datetime) -> None:
    item = pod()
    del item["kind"], item["apiVersion"]
    text = json.dumps({"apiVersion": "v1", "kind": "PodList", "items": [item]})
    for data in (text.encode(), text.encode("utf-16"), text.encode("utf-8-sig")):
        assert len(read(tmp_path / "d", data, now)["pod"]) == 1


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is empty"),
        (b"  \n", "is empty"),
        (b"garbage", "not JSON"),
        (b"apiVersion: v1\nkind: List\n", "this is YAML, not JSON"),
        (b"NAME   STATUS\nn0     Ready\n", "this is kubectl's table, not JSON"),
        (listed(node(), pod())[:-40], "the JSON is cut off after"),
        (json.dumps(pod()).encode(), "holds one Pod, not a List"),
        (b"{}", "holds a JSON object, not a List"),
        (b"[]", "is JSON, but no List"),
        (b'{"kind": "List", "items": 3}', "is JSON, but no List"),
        (b'{"kind": "List"}', "a List without items"),
        (listed(), r"no Node and no Pod \(it is an empty List\)"),
        (listed({"kind": "Service"}, {"kind": "Service"}), r"no Pod \(2 Service\)"),
    ],
)
def test_wrong_files_are_refused_in_words(
    tmp_path: Path, now: datetime, data: bytes, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        read(tmp_path / "dump.json", data, now)


def test_a_file_that_is_not_there_is_named(tmp_path: Path, now: datetime) -> None:
    with pytest.raises(UsageError, match=r"cannot read .*none.json"):
        list(import_kubectl(tmp_path / "none.json", "c", now))


def test_an_exporters_address_is_its_nodes(tmp_path: Path, now: datetime) -> None:
    there = node("npu-1")
    there["status"]["addresses"] = [
        {"type": "InternalIP", "address": "10.0.1.5"},
        {"type": "Hostname", "address": "npu-1"},
    ]
    exporter, other = pod("npu-exporter-x7k2p", node="npu-1"), pod("web", node="npu-1")
    exporter["status"]["podIP"], other["status"]["podIP"] = "10.0.3.7", "10.0.3.8"
    rows = read(tmp_path / "d.json", listed(there, exporter, other), now)["address"]
    assert {(r["address"], r["node"]) for r in rows} == {
        ("10.0.1.5", "npu-1"),
        ("10.0.3.7", "npu-1"),
        ("pod/npu-exporter-x7k2p", "npu-1"),
        ("npu-1", "npu-1"),
    }
