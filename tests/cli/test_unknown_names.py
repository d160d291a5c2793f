"""Names that nothing explains are counted and listed with their pods and GPUs, never dropped."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from fallow.kube.gpu_resources import is_unknown_accelerator
from fallow.resources import read_table
from fallow.settings import load
from runtime.service.metrics import SelfMetrics
from tests.field.site import build_node, build_pod, list_lines, write_dump, write_lines
from tests.kube.objects import node, pod
from warehouse.lake import Warehouse
from warehouse.unknown_names import read_unknown_names

CHECKS = {row["check"] for row in read_table("runtime.operations.doctor", "unknown_names.csv")}


@pytest.mark.parametrize(
    "name",
    ["google.com/tpu", "example.com/gpu", "intel.com/gpu", "aws.amazon.com/neuroncore",
     "cambricon.com/mlu370", "google_com_tpu", "nvidia.com/pgpu",
     "alpha.kubernetes.io/nvidia-gpu"],
)  # fmt: skip
def test_an_unknown_accelerator_is_one(name: str) -> None:
    assert is_unknown_accelerator(name)


@pytest.mark.parametrize(
    "name",
    ["cpu", "memory", "nvidia.com/gpu", "nvidia.com/gpumem", "habana.ai/gaudi", "amd.com/dpx_nps1",
     "gpu.intel.com/i915_monitoring", "gpu.intel.com/millicores", "example.com/output",
     "rdma/hca_shared_devices_a", "ephemeral_storage", "aws.amazon.com/neuron"],
)  # fmt: skip
def test_what_is_known_or_no_accelerator_is_none(name: str) -> None:
    assert not is_unknown_accelerator(name)


def test_doctor_names_them_with_their_pods_nodes_and_gpus(
    fallow: Callable[..., Any], tmp_path: Path
) -> None:
    size = {"google.com/tpu": "4"}
    sidecar = {"name": "s", "restartPolicy": "Always", "resources": {"limits": size}}
    objects = [node(capacity=size), pod("p0", limits=size), pod("p1", initContainers=[sidecar])]
    assert _check(fallow, tmp_path, objects)["unknown resources"] == (
        "not counted, though they may be accelerators: "
        "google.com/tpu (2 pods, 1 nodes, 4 GPUs, default)"
    )


def test_without_a_node_that_offers_them_what_pods_request_counts(
    fallow: Callable[..., Any], tmp_path: Path
) -> None:
    objects = [node(), pod("p0", limits={"google.com/tpu": "3"})]
    finding = _check(fallow, tmp_path, objects)["unknown resources"]
    assert "google.com/tpu (1 pods, 0 nodes, 3 GPUs" in finding


def test_a_poll_that_comes_again_counts_no_device_twice(
    fallow: Callable[..., Any], tmp_path: Path
) -> None:
    objects = [node(capacity={"google.com/tpu": "4"})]
    first, second = (_check(fallow, tmp_path, objects)["unknown resources"] for _ in range(2))
    assert first == second


def test_names_of_telemetry_that_no_inventory_has_are_counted(
    fallow: Callable[..., Any], tmp_path: Path
) -> None:
    """A host and a pod of telemetry, the GPUs of each, and a node whose label differs."""
    objects = [
        build_node("a", 4, labels={"nvidia.com/gpu.count": "8"}),
        build_node("b", 1),
        build_pod("known", "b", gpus=1),
    ]
    lines = [
        *list_lines("GPU-0", "elsewhere", pod="known", namespace="ml"),
        *list_lines("GPU-1", "elsewhere", pod="ghost", namespace="ml"),
        *list_lines("GPU-2", "a", pod="ghost", namespace="ml"),
    ]
    path = write_lines(tmp_path / "metrics.txt", lines)
    text = ("import", "exposition", path, "--interval", "5m", "--home", tmp_path / "home")
    assert fallow(*text).code == 0
    findings = _check(fallow, tmp_path, objects)
    assert "elsewhere (2 pods, 0 nodes, 2 GPUs" in findings["unresolved nodes"]
    assert "a (0 pods, 1 nodes, 8 GPUs: " in findings["GPUs counted differently"]
    metrics, now = SelfMetrics(), datetime.now(UTC)
    with Warehouse.open(load(environ={}, flags={"home": tmp_path / "home"}).settings) as warehouse:
        metrics.record_fleet(warehouse, "default", now)
        kinds = set(read_unknown_names(warehouse, now, "default")["kind"].to_pylist())
    assert kinds == {"host", "count"}
    for line in (b'names{kind="host"} 1.0', b'gpus{kind="host"} 2.0', b'gpus{kind="count"} 8.0'):
        assert b"fallow_unknown_" + line in metrics.text()


def _check(
    fallow: Callable[..., Any], tmp_path: Path, objects: list[dict[str, Any]]
) -> dict[str, str]:
    path, home = write_dump(tmp_path / "dump.json", objects), ("--home", tmp_path / "home")
    assert fallow("import", "kubectl", path, *home).code == 0
    checks = json.loads(fallow("doctor", *home, "-o", "json").out)["checks"]
    assert all(c["status"] == "warn" for c in checks if c["check"] in CHECKS)
    return {c["check"]: c["finding"] for c in checks}
