"""Resources that look like accelerators of no known kind are counted and named, never dropped."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fallow.kube.gpu_resources import is_unknown_accelerator
from tests.kube.objects import node, pod


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


def test_doctor_names_them_with_their_pods_and_nodes(
    fallow: Callable[..., Any], tmp_path: Path
) -> None:
    size = {"google.com/tpu": "4"}
    sidecar = {"name": "s", "restartPolicy": "Always", "resources": {"limits": size}}
    objects = [node(capacity=size), pod("p0", limits=size), pod("p1", initContainers=[sidecar])]
    (tmp_path / "dump.json").write_text(json.dumps({"kind": "List", "items": objects}))
    home = ("--home", tmp_path / "home")
    assert fallow("import", "kubectl", tmp_path / "dump.json", *home).code == 0
    checks = json.loads(fallow("doctor", *home, "-o", "json").out)["checks"]
    row = next(c for c in checks if c["check"] == "unknown resources")
    assert row["status"] == "warn"
    assert "google.com/tpu (2 pods, 1 nodes)" in row["finding"]
