"""What a pod reserves: init containers, sidecars, overhead, pod-level resources, GPU names."""

from fractions import Fraction
from typing import Any

import pytest

from collectors.kube.resources import sum_limits, sum_requests
from fallow.kube.gpu_resources import find_gpu_resource, select_gpus
from fallow.kube.pod_requests import sum_pod_amounts
from tests.kube.objects import as_pod, pod


def container(cpu: str = "", gpu: str = "", *, sidecar: bool = False, **more: str) -> Any:
    wanted = {**({"cpu": cpu} if cpu else {}), **({"nvidia.com/gpu": gpu} if gpu else {}), **more}
    policy = {"restartPolicy": "Always"} if sidecar else {}
    return {"name": "c", "resources": {"requests": wanted}, **policy}


@pytest.mark.parametrize(
    ("spec", "cpu"),
    [
        ({"containers": [container("1"), container("2")]}, 3),
        # an init container runs alone: the greater counts, not the sum
        ({"containers": [container("1")], "initContainers": [container("4")]}, 4),
        ({"containers": [container("3")], "initContainers": [container("2")]}, 3),
        ({"containers": [container("1")], "initContainers": [container("2"), container("5")]}, 5),
        # a sidecar stays: it adds to the containers and to later init containers
        ({"containers": [container("1")], "initContainers": [container("2", sidecar=True)]}, 3),
        (
            {
                "containers": [container("1")],
                "initContainers": [container("2", sidecar=True), container("4")],
            },
            6,
        ),
        (
            {
                "containers": [container("1")],
                "initContainers": [container("4"), container("2", sidecar=True)],
            },
            4,
        ),
        ({"containers": [container("1")], "overhead": {"cpu": "250m"}}, Fraction(5, 4)),
        ({"containers": [container("1")], "resources": {"requests": {"cpu": "8"}}}, 8),
    ],
)
def test_cpu_is_what_the_scheduler_reserves(spec: Any, cpu: Fraction) -> None:
    assert sum_requests(as_pod(pod(**spec)).spec)["cpu"] == cpu
    assert sum_pod_amounts(spec)["cpu"] == cpu


def test_a_request_that_is_not_given_is_the_limit() -> None:
    spec = as_pod(pod(limits={"nvidia.com/gpu": "2", "cpu": "8"})).spec
    assert sum_requests(spec) == {"nvidia.com/gpu": 2, "cpu": 8}


def test_init_containers_borrow_gpus_and_do_not_add_any() -> None:
    spec = as_pod(pod(containers=[container(gpu="2")], initContainers=[container(gpu="1")])).spec
    assert sum_requests(spec)["nvidia.com/gpu"] == 2


def test_one_container_without_a_limit_leaves_the_pod_without() -> None:
    capped = {"name": "a", "resources": {"limits": {"cpu": "2"}}}
    assert sum_limits(as_pod(pod(containers=[capped, capped])).spec)["cpu"] == 4
    assert "cpu" not in sum_limits(as_pod(pod(containers=[capped, container("1")])).spec)


@pytest.mark.parametrize(
    ("name", "vendor", "form"),
    [
        ("nvidia.com/gpu", "nvidia", "whole"),
        ("nvidia.com/gpu.shared", "nvidia", "shared"),
        ("nvidia.com/mig-1g.10gb", "nvidia", "mig"),
        ("nvidia.com/mig-1g.10gb.me", "nvidia", "mig"),
        ("nvidia.com/mig-1g.10gb+me", "nvidia", "mig"),
        ("nvidia.com/mig-3g.40gb.shared", "nvidia", "mig"),
        ("amd.com/gpu", "amd", "whole"),
        ("gpu.intel.com/i915", "intel", "whole"),
        ("gpu.intel.com/xe", "intel", "whole"),
        ("habana.ai/gaudi", "intel", "whole"),
        ("aws.amazon.com/neuron", "aws", "whole"),
        ("huawei.com/Ascend910", "ascend", "whole"),
        ("huawei.com/Ascend310P-2c", "ascend", "shared"),
        ("nvidia.com/gpumem", "nvidia", "memory_mib"),
        ("nvidia.com/gpucores", "nvidia", "cores_pct"),
    ],
)
def test_gpu_resources_are_known_by_name(name: str, vendor: str, form: str) -> None:
    found = find_gpu_resource(name)
    assert found is not None
    assert (found.vendor, found.form) == (vendor, form)


@pytest.mark.parametrize(
    "name",
    [
        "cpu",
        "nvidia.com/gpu-count",
        "nvidia.com/hostdev",
        "gpu.intel.com/millicores",
        "gpu.intel.com/i915_monitoring",
        "huawei.com/Ascend910-memory",
        "rdma/hca",
    ],
)
def test_other_resources_are_no_gpus(name: str) -> None:
    assert find_gpu_resource(name) is None


def test_amounts_of_each_device_count_no_devices() -> None:
    wanted = {"nvidia.com/gpu": Fraction(1), "nvidia.com/gpumem": Fraction(4000)}
    assert [r.name for r in select_gpus(wanted)] == ["nvidia.com/gpu"]
