"""Labels say which device and whose, in every spelling they are met."""

import pytest

from collectors.series import Identity, find_owner, identify, parse_host

BASE = {"gpu": "0", "UUID": "GPU-1", "Hostname": "node-a"}


def who(**labels: str) -> Identity:
    found = identify({**BASE, **labels})
    assert found is not None
    return found


OWNERS = [
    ({"pod": "p", "namespace": "n", "container": "c"}, ("n", "p", "c")),
    ({"pod_name": "p", "pod_namespace": "n", "container_name": "c"}, ("n", "p", "c")),
    ({"podname": "p", "podnamespace": "n", "ctrname": "c"}, ("n", "p", "c")),
    (
        {
            "exported_pod": "p",
            "exported_namespace": "n",
            "exported_container": "c",
            "pod": "nvidia-dcgm-exporter-x7",
            "namespace": "gpu-operator",
            "container": "nvidia-dcgm-exporter",
        },
        ("n", "p", "c"),
    ),
    # honorLabels false on an unallocated GPU: only the exporter's own labels are left.
    (
        {
            "pod": "nvidia-dcgm-exporter-x7",
            "namespace": "gpu-operator",
            "container": "nvidia-dcgm-exporter",
        },
        (None, None, None),
    ),
    ({"pod": "site-agent-1", "namespace": "m", "container": "exporter"}, (None, None, None)),
    ({"pod": "dcgm-exporter-cmhft", "namespace": "m"}, (None, None, None)),
    ({"pod": "", "namespace": "", "container": ""}, (None, None, None)),
    ({}, (None, None, None)),
    # Ascend with honorLabels false: the namespace is renamed, pod_name is not.
    (
        {
            "pod_name": "p",
            "exported_namespace": "n",
            "container_name": "c",
            "namespace": "kube-system",
            "pod": "npu-exporter-1",
            "container": "npu-exporter",
        },
        ("n", "p", "c"),
    ),
    ({"exported_pod": "", "pod": "other", "namespace": "x"}, (None, None, None)),
    # A batch scheduler's job, where no pod is named.
    ({"hpc_job": "4711"}, ("hpc-jobs", "4711", None)),
    ({"hpc_job": "4711", "pod": "dcgm-exporter-cmhft"}, ("hpc-jobs", "4711", None)),
    ({"hpc_job": "4711", "pod": "slurm-0", "namespace": "x"}, ("x", "slurm-0", None)),
    ({"hpc_job": ""}, (None, None, None)),
]


@pytest.mark.parametrize(("labels", "owner"), OWNERS)
def test_the_workload_is_told_from_the_exporter(
    labels: dict[str, str], owner: tuple[str | None, str | None, str | None]
) -> None:
    assert find_owner(labels) == owner


@pytest.mark.parametrize(
    ("labels", "node"),
    [
        ({"Hostname": "a"}, "a"),
        ({"hostname": "a"}, "a"),
        ({"node": "b", "Hostname": "a"}, "b"),
        ({"kubernetes_node": "b", "hostname": "a"}, "b"),
        ({"Hostname": "dcgm-exporter-cmhft", "instance": "10.0.0.7:9400"}, "10.0.0.7"),
        ({"Hostname": "dcgm-exporter-cmhft"}, "dcgm-exporter-cmhft"),
        ({"hostname": "hami-workshop"}, "hami-workshop"),
        ({"instance": "[fd00::1]:9400"}, "fd00::1"),
    ],
)
def test_node_spellings(labels: dict[str, str], node: str | None) -> None:
    found = identify({"UUID": "GPU-1", **labels})
    assert found is not None
    assert found.node == node


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("node:9400", "node"),
        ("node", "node"),
        ("http://node:9400/metrics", "node"),
        ("[::1]:9", "::1"),
        ("", None),
    ],
)
def test_host_of_an_address(address: str, name: str | None) -> None:
    assert parse_host(address) == name


def test_a_mig_instance_is_its_own_device() -> None:
    found = who(GPU_I_ID="7", GPU_I_PROFILE="1g.5gb")
    assert (found.device, found.parent, found.profile) == ("GPU-1/gi7", "GPU-1", "1g.5gb")


def test_the_index_names_a_device_only_without_uuid() -> None:
    assert who().device == "GPU-1"
    bare = identify({"gpu": "5", "Hostname": "node-a"})
    assert bare is not None
    assert bare.device == "node-a/gpu5"
    assert identify({"gpu": "5"}) is None


def test_a_replica_is_its_gpu() -> None:
    assert who(UUID="GPU-1::3").device == "GPU-1"


def test_nvlink_lines_name_the_same_device() -> None:
    found = identify({"nvlink": "0", "gpu": "0", "gpu_uuid": "GPU-1", "model_name": "H100"})
    assert found is not None
    assert (found.device, found.model) == ("GPU-1", "H100")
