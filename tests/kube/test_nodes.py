"""Nodes: physical GPUs under every way of sharing, and how each cloud says what a node is."""

import json
from datetime import datetime
from typing import Any

import msgspec
import pytest

from collectors.kube.devices import Dra
from collectors.kube.nodes import build_node_row, read_node_gpus
from collectors.kube.shapes import CustomObject
from fallow.kube.node_gpus import count_instances_per_gpu
from tests.kube.objects import as_node, node

A100 = "NVIDIA-A100-SXM4-40GB"
HAMI = json.dumps(
    [{"id": f"GPU-{i}", "count": 10, "devmem": 40960, "type": "A100"} for i in (0, 1)]
)


def gpus(**what: Any) -> tuple[Any, ...]:
    found = read_node_gpus(as_node(node(**what)), Dra())
    return (found.resource, found.count, found.model, found.replicas, found.sharing)


@pytest.mark.parametrize(
    ("capacity", "labels", "annotations", "expected"),
    [
        ({}, {}, {}, (None, 0, None, None, None)),
        (
            {"nvidia.com/gpu": "8"},
            {"nvidia.com/gpu.product": A100, "nvidia.com/gpu.count": "8"},
            {},
            ("nvidia.com/gpu", 8, A100, None, "none"),
        ),
        (
            {"nvidia.com/gpu": "32"},
            {
                "nvidia.com/gpu.product": f"{A100}-SHARED",
                "nvidia.com/gpu.replicas": "4",
                "nvidia.com/gpu.count": "8",
                "nvidia.com/gpu.sharing-strategy": "time-slicing",
            },
            {},
            ("nvidia.com/gpu", 8, A100, 4, "time-slicing"),
        ),
        (
            {"nvidia.com/gpu.shared": "16", "nvidia.com/gpu": "0"},
            {"nvidia.com/gpu.replicas": "2", "nvidia.com/gpu.sharing-strategy": "mps"},
            {},
            ("nvidia.com/gpu.shared", 8, None, 2, "mps"),
        ),
        (  # MIG, single strategy: instances pass as GPUs
            {"nvidia.com/gpu": "56"},
            {"nvidia.com/gpu.product": f"{A100}-MIG-1g.5gb", "nvidia.com/gpu.count": "56"},
            {},
            ("nvidia.com/gpu", 8, A100, None, "mig"),
        ),
        (  # MIG, mixed strategy: one whole board beside one that is cut up
            {
                "nvidia.com/gpu": "1",
                "nvidia.com/mig-3g.20gb": "1",
                "nvidia.com/mig-2g.10gb": "1",
                "nvidia.com/mig-1g.5gb": "2",
            },
            {"nvidia.com/gpu.product": A100, "nvidia.com/gpu.count": "2"},
            {},
            ("nvidia.com/gpu", 2, A100, None, "mig"),
        ),
        (  # HAMi: allocatable is physical times split count
            {"nvidia.com/gpu": "20"},
            {},
            {"hami.io/node-nvidia-register": HAMI},
            ("nvidia.com/gpu", 2, "A100", 10, "hami"),
        ),
        (
            {"nvidia.com/gpu": "10"},
            {},
            {"hami.io/node-nvidia-register": "GPU-1,10,15360,100,NVIDIA-T4,0,true:"},
            ("nvidia.com/gpu", 1, "NVIDIA-T4", 10, "hami"),
        ),
        (
            {"nvidia.com/gpu": "8"},
            {
                "cloud.google.com/gke-accelerator": "nvidia-l4",
                "cloud.google.com/gke-gpu-sharing-strategy": "time-sharing",
                "cloud.google.com/gke-max-shared-clients-per-gpu": "4",
                "nvidia.com/gpu.replicas": "",
            },
            {},
            ("nvidia.com/gpu", 2, "nvidia-l4", 4, "time-slicing"),
        ),
        (  # the plug-in is down, the boards are paid for
            {"nvidia.com/gpu": "0"},
            {"nvidia.com/gpu.product": A100, "nvidia.com/gpu.count": "8"},
            {},
            (None, 8, A100, None, None),
        ),
        ({"amd.com/gpu": "8"}, {}, {}, ("amd.com/gpu", 8, None, None, "none")),
    ],
)
def test_physical_gpus_are_counted_whatever_the_sharing(
    capacity: Any, labels: Any, annotations: Any, expected: tuple[Any, ...]
) -> None:
    assert gpus(capacity=capacity, labels=labels, annotations=annotations) == expected


PARTITION, TYPE = "cloud.google.com/gke-gpu-partition-size", "node.kubernetes.io/instance-type"
UNTOLD = {"nvidia.com/gpu.count": "1", "nvidia.com/gpu.replicas": "1"}
SHARED_MIG = {
    "nvidia.com/gpu.count": "1",
    "nvidia.com/mig-1g.5gb.count": "7",
    "nvidia.com/mig-1g.5gb.replicas": "4",
}


@pytest.mark.parametrize(
    ("capacity", "labels", "expected"),
    [
        # GKE cuts GPUs by a label of the pool; no discovery runs.
        ({"nvidia.com/gpu": "7"}, {PARTITION: "1g.5gb"}, (1, None, "mig")),
        # A machine of a cloud's list has no more boards than its type.
        ({"nvidia.com/gpu": "4"}, {TYPE: "g5.xlarge"}, (1, 4, "time-slicing")),
        ({"nvidia.com/gpu": "4"}, {TYPE: "g5.12xlarge"}, (4, None, "none")),
        ({"nvidia.com/gpu": "2"}, {TYPE: "g5.12xlarge"}, (2, None, "none")),
        ({"nvidia.com/gpu": "4"}, {TYPE: "own"}, (4, None, "none")),
        # The plugin shares, the discovery has not heard of it.
        ({"nvidia.com/gpu.shared": "50"}, UNTOLD, (1, 50, "time-slicing")),
        ({"nvidia.com/gpu.shared": "50"}, {}, (50, None, "time-slicing")),
        # A count of a label alone does not lower what the kubelet gives out.
        ({"nvidia.com/gpu": "8"}, {"nvidia.com/gpu.count": "4"}, (8, None, "none")),
        ({"nvidia.com/mig-1g.5gb.shared": "28"}, SHARED_MIG, (1, 4, "time-slicing")),
        ({"nvidia.com/mig-1g.5gb": "7"}, SHARED_MIG, (1, None, "mig")),
    ],
)  # fmt: skip
def test_counts_that_differ_are_weighed(
    capacity: dict[str, str], labels: dict[str, str], expected: tuple[int, int | None, str]
) -> None:
    found = read_node_gpus(as_node(node(capacity=capacity, labels=labels)), Dra())
    assert (found.count, found.replicas, found.sharing) == expected


@pytest.mark.parametrize(
    ("profile", "model", "count"),
    [
        ("1g.5gb", "A100-SXM4-40GB", 7),
        ("1g.10gb", "A100-SXM4-40GB", 4),
        ("1g.10gb", "A100-SXM4-80GB", 7),
        ("2g.10gb", "A100-SXM4-40GB", 3),
        ("3g.20gb", "A100-SXM4-40GB", 2),
        ("4g.20gb", "A100-SXM4-40GB", 1),
        ("7g.80gb", "H100-80GB-HBM3", 1),
        ("1g.18gb", "H200", 7),
        ("1g.35gb", "H200", 4),
        ("1g.6gb", "NVIDIA-A30", 4),
        ("2g.12gb", "NVIDIA-A30", 2),
        ("1g.5gb", None, 7),
        ("odd", None, 1),
    ],
)
def test_instances_that_fill_a_board(profile: str, model: str | None, count: int) -> None:
    assert count_instances_per_gpu(profile, model) == count


@pytest.mark.parametrize(
    ("provider_id", "labels", "expected"),
    [
        ("aws:///us-east-1a/i-1", {"karpenter.sh/capacity-type": "spot"}, ("aws", "spot", None)),
        (
            "aws:///us-east-1a/i-1",
            {"karpenter.sh/capacity-type": "reserved", "karpenter.sh/nodepool": "gpu"},
            ("aws", "reserved", "gpu"),
        ),
        (
            "aws:///us-east-1a/i-1",
            {"eks.amazonaws.com/capacityType": "SPOT", "eks.amazonaws.com/nodegroup": "a"},
            ("aws", "spot", "a"),
        ),
        (
            "aws:///us-east-1a/i-1",
            {"eks.amazonaws.com/capacityType": "ON_DEMAND"},
            ("aws", "on-demand", None),
        ),
        (
            "gce://p/z/n",
            {"cloud.google.com/gke-spot": "true", "cloud.google.com/gke-nodepool": "b"},
            ("gcp", "spot", "b"),
        ),
        (
            "gce://p/z/n",
            {"cloud.google.com/gke-provisioning": "standard"},
            ("gcp", "on-demand", None),
        ),
        (
            "azure:///subscriptions/x",
            {"kubernetes.azure.com/scalesetpriority": "spot", "agentpool": "c"},
            ("azure", "spot", "c"),
        ),
        ("azure:///subscriptions/x", {}, ("azure", "on-demand", None)),
        ("kind://docker/kind/n", {}, ("other", None, None)),
        (None, {}, (None, None, None)),
    ],
)
def test_clouds_say_capacity_and_pool_in_their_own_labels(
    provider_id: str | None, labels: Any, expected: tuple[Any, ...], now: datetime
) -> None:
    item = node(labels=labels, providerID=provider_id)
    row = build_node_row(as_node(item), cluster="c", now=now, dra=Dra())
    assert (row["provider"], row["capacity_type"], row["pool"]) == expected


def test_a_row_has_size_place_and_state(now: datetime) -> None:
    labels = {
        "node.kubernetes.io/instance-type": "p4d.24xlarge",
        "topology.kubernetes.io/region": "us-east-1",
        "topology.kubernetes.io/zone": "us-east-1a",
    }
    taint = {"key": "nvidia.com/gpu", "effect": "NoSchedule"}
    item = node(labels=labels, unschedulable=True, taints=[taint])
    row = build_node_row(as_node(item), cluster="c", now=now, dra=Dra())
    assert (row["instance_type"], row["region"], row["zone"]) == tuple(labels.values())
    assert (row["cpu_milli"], row["memory_bytes"]) == (95500, 2**40)
    assert (row["ready"], row["unschedulable"]) == (True, True)
    assert json.loads(row["taints"])[0]["key"] == "nvidia.com/gpu"
    assert row["first_seen"].isoformat() == "2026-11-01T00:00:00+00:00"


def test_slices_count_boards_where_no_plug_in_offers_any() -> None:
    def offered(name: str, **attributes: str) -> dict[str, Any]:
        return {"name": name, "attributes": {k: {"string": v} for k, v in attributes.items()}}

    devices = [
        offered("gpu-0", uuid="GPU-0", productName="NVIDIA H100"),
        offered("gpu-1", uuid="GPU-1", productName="NVIDIA H100"),
        offered("gpu-1-mig-1g10gb-19-0", uuid="MIG-1", parentUUID="GPU-1", profile="1g.10gb"),
    ]
    spec = {
        "driver": "gpu.nvidia.com",
        "nodeName": "n0",
        "pool": {"name": "n0"},
        "devices": devices,
    }
    slices = [msgspec.json.decode(json.dumps({"metadata": {}, "spec": spec}), type=CustomObject)]
    found = read_node_gpus(as_node(node()), Dra(slices))
    assert (found.count, found.model) == (2, "NVIDIA H100")


@pytest.mark.parametrize(
    ("capacity", "allocatable", "labels", "expected"),
    [
        ("8", "8", {"nvidia.com/gpu.count": "8"}, (8, 8)),
        ("8", "7", {"nvidia.com/gpu.count": "8"}, (8, 7)),  # a board that the plug-in calls sick
        ("7", "7", {"nvidia.com/gpu.count": "8"}, (8, 7)),  # one that fell off its bus
        ("7", "7", {}, (7, 7)),
        ("32", "28", {"nvidia.com/gpu.count": "8", "nvidia.com/gpu.replicas": "4"}, (8, 7)),
        ("7", "6", {"nvidia.com/gpu.product": f"{A100}-MIG-1g.5gb", "nvidia.com/gpu.count": "7"},
         (1, None)),
    ],
)  # fmt: skip
def test_boards_that_a_node_has_and_those_that_its_kubelet_gives_out(
    capacity: str, allocatable: str, labels: dict[str, str], expected: tuple[int, int | None]
) -> None:
    item = node(capacity={"nvidia.com/gpu": capacity}, labels=labels)
    item["status"]["allocatable"]["nvidia.com/gpu"] = allocatable
    found = read_node_gpus(as_node(item), Dra())
    assert (found.count, found.allocatable) == expected


def test_shares_of_hami_hide_how_many_boards_can_be_given_out() -> None:
    item = node(
        capacity={"nvidia.com/gpu": "20"}, annotations={"hami.io/node-nvidia-register": HAMI}
    )
    found = read_node_gpus(as_node(item), Dra())
    assert (found.count, found.allocatable) == (2, None)
