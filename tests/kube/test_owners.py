"""Owners: the topmost object, or nothing where it cannot be known; never a lower one."""

import json
from typing import Any

import msgspec
import pytest

from collectors.kube.owners import (
    AbsentOwnerError,
    Owners,
    TopOwner,
    find_by_labels,
    find_by_template_hash,
)
from collectors.kube.shapes import Meta, Partial
from fallow.kube.owner_chains import UnknownOwnerError
from tests.kube.objects import Object, as_pod, meta, pod

RS = ("apps/v1", "ReplicaSet/web-abc")


class Objects:
    """Objects by kind and name; some kinds may not be read."""

    def __init__(self) -> None:
        self.found: dict[tuple[str, str, str], Meta] = {}
        self.forbidden: set[str] = set()
        self.asked: list[str] = []

    def add(self, group: str, kind: str, item: Object, **words: Any) -> None:
        item["metadata"].setdefault("uid", f"{kind.lower()}-{item['metadata']['name']}")
        item["metadata"].update(words)
        found = msgspec.json.decode(json.dumps(item), type=Partial).metadata
        self.found[group, kind, found.name] = found

    def __call__(self, group: str, kind: str, namespace: str, name: str, version: str) -> Meta:
        del namespace, version
        self.asked.append(f"{kind}/{name}")
        if kind in self.forbidden:
            raise UnknownOwnerError
        if (group, kind, name) not in self.found:
            raise AbsentOwnerError
        return self.found[group, kind, name]


@pytest.fixture
def objects() -> Objects:
    return Objects()


def top(objects: Objects, item: Object) -> TopOwner | None:
    return Owners(objects).top(as_pod(item).metadata)


def test_a_bare_pod_is_its_own_workload(objects: Objects) -> None:
    assert top(objects, pod("solo")) == TopOwner("Pod", "solo", "pod-solo")


def test_a_chain_is_climbed_to_its_top(objects: Objects) -> None:
    objects.add("apps", "ReplicaSet", meta("web-abc", owner=("apps/v1", "Deployment/web")))
    objects.add("apps", "Deployment", meta("web"))
    assert top(objects, pod(owner=RS)) == TopOwner("Deployment", "web", "deployment-web")


def test_owners_of_any_group_are_followed(objects: Objects) -> None:
    objects.add("batch", "Job", meta("j", owner=("jobset.x-k8s.io/v1alpha2", "JobSet/s")))
    objects.add(
        "jobset.x-k8s.io",
        "JobSet",
        meta("s", owner=("trainer.kubeflow.org/v1alpha1", "TrainJob/t")),
    )
    objects.add("trainer.kubeflow.org", "TrainJob", meta("t"))
    found = top(objects, pod(owner=("batch/v1", "Job/j")))
    assert found is not None
    assert (found.kind, found.name) == ("TrainJob", "t")


@pytest.mark.parametrize("hidden", ["ReplicaSet", "Deployment"])
def test_an_owner_that_may_not_be_read_is_unknown(objects: Objects, hidden: str) -> None:
    objects.add("apps", "ReplicaSet", meta("web-abc", owner=("apps/v1", "Deployment/web")))
    objects.add("apps", "Deployment", meta("web"))
    objects.forbidden.add(hidden)
    assert top(objects, pod(owner=RS)) is None


def test_an_owner_that_is_gone_is_unknown(objects: Objects) -> None:
    objects.add("apps", "ReplicaSet", meta("web-abc", owner=("apps/v1", "Deployment/web")))
    assert top(objects, pod(owner=RS)) is None


def test_another_object_of_the_owners_name_is_not_the_owner(objects: Objects) -> None:
    objects.add("apps", "ReplicaSet", meta("web-abc"), uid="made-later")
    assert top(objects, pod(owner=RS)) is None


def test_owners_that_do_not_control_are_no_owners(objects: Objects) -> None:
    item = pod("solo", owner=RS)
    item["metadata"]["ownerReferences"][0]["controller"] = False
    assert top(objects, item) == TopOwner("Pod", "solo", "pod-solo")


def test_a_circle_of_owners_is_unknown(objects: Objects) -> None:
    objects.add("x.io", "A", meta("a", owner=("x.io/v1", "B/b")))
    objects.add("x.io", "B", meta("b", owner=("x.io/v1", "A/a")))
    assert top(objects, pod(owner=("x.io/v1", "A/a"))) is None


def test_ten_links_are_followed_and_no_more(objects: Objects) -> None:
    for i in range(12):
        owner = ("x.io/v1", f"K/k{i + 1}") if i < 11 else None
        objects.add("x.io", "K", meta(f"k{i}", owner=owner))
    assert top(objects, pod(owner=("x.io/v1", "K/k2"))) is not None
    assert top(objects, pod(owner=("x.io/v1", "K/k0"))) is None


def test_a_static_pod_belongs_to_its_node(objects: Objects) -> None:
    assert top(objects, pod(owner=("v1", "Node/n0"))) == TopOwner("Node", "n0", "node-n0")
    assert objects.asked == []


def test_each_owner_is_looked_up_once(objects: Objects) -> None:
    objects.add("apps", "ReplicaSet", meta("web-abc"))
    owners = Owners(objects)
    for i in range(5):
        owners.top(as_pod(pod(f"p{i}", owner=RS)).metadata)
    assert objects.asked == ["ReplicaSet/web-abc"]


@pytest.mark.parametrize(
    ("label", "group", "kind"),
    [
        ("serving.kserve.io/inferenceservice", "serving.kserve.io", "InferenceService"),
        ("leaderworkerset.sigs.k8s.io/name", "leaderworkerset.x-k8s.io", "LeaderWorkerSet"),
        ("jobset.sigs.k8s.io/jobset-name", "jobset.x-k8s.io", "JobSet"),
        ("notebook-name", "kubeflow.org", "Notebook"),
    ],
)
def test_labels_lead_where_references_end(
    objects: Objects, label: str, group: str, kind: str
) -> None:
    objects.add("apps", "StatefulSet", meta("sts"))
    objects.add(group, kind, meta("mine"))
    found = top(objects, pod(owner=("apps/v1", "StatefulSet/sts"), labels={label: "mine"}))
    assert found is not None
    assert (found.kind, found.name) == (kind, "mine")


def test_a_jump_is_climbed_further(objects: Objects) -> None:
    objects.add("ray.io", "RayCluster", meta("rc", owner=("ray.io/v1", "RayJob/train")))
    objects.add("ray.io", "RayJob", meta("train"))
    found = top(objects, pod(labels={"ray.io/cluster": "rc"}))
    assert found is not None
    assert (found.kind, found.name) == ("RayJob", "train")


def test_a_label_that_names_nothing_leaves_the_references(objects: Objects) -> None:
    objects.add("apps", "StatefulSet", meta("sts"))
    item = pod(owner=("apps/v1", "StatefulSet/sts"), labels={"notebook-name": "none-such"})
    assert top(objects, item) == TopOwner("StatefulSet", "sts", "statefulset-sts")


def test_a_label_that_names_what_we_may_not_read_is_unknown(objects: Objects) -> None:
    objects.add("apps", "StatefulSet", meta("sts"))
    objects.forbidden.add("Notebook")
    item = pod(owner=("apps/v1", "StatefulSet/sts"), labels={"notebook-name": "mine"})
    assert top(objects, item) is None


def test_a_hub_server_is_its_users(objects: Objects) -> None:
    words = {"hub.jupyter.org/username": "ada", "hub.jupyter.org/servername": ""}
    server = pod("jupyter-ada", labels={"component": "singleuser-server"}, annotations=words)
    assert top(objects, server) == TopOwner("JupyterServer", "ada", None)
    assert top(objects, pod("other", annotations=words)) == TopOwner("Pod", "other", "pod-other")


def test_the_hash_label_names_the_deployment_where_only_pods_are_known() -> None:
    item = pod(owner=("apps/v1", "ReplicaSet/web-6d4c"), labels={"pod-template-hash": "6d4c"})
    assert find_by_template_hash(as_pod(item).metadata) == TopOwner("Deployment", "web", None)
    assert find_by_template_hash(as_pod(pod(owner=RS)).metadata) is None


@pytest.mark.parametrize(
    ("kind", "name", "labels", "expected"),
    [
        ("StatefulSet", "vllm-0", {"leaderworkerset.sigs.k8s.io/name": "vllm"},
         ("LeaderWorkerSet", "vllm")),
        ("StatefulSet", "other", {"leaderworkerset.sigs.k8s.io/name": "vllm"},
         ("StatefulSet", "other")),
        ("StatefulSet", "web", {}, ("StatefulSet", "web")),
        ("Job", "train-w-0", {"jobset.sigs.k8s.io/jobset-name": "train"}, ("JobSet", "train")),
        ("RayCluster", "chat-x2", {"ray.io/cluster": "chat-x2"}, None),
        ("RayCluster", "chat-x2", {}, None),
        ("RayCluster", "chat-x2", {"ray.io/originated-from-cr-name": "chat",
         "ray.io/originated-from-crd": "RayService"}, ("RayService", "chat")),
        ("RayCluster", "chat-x2", {"ray.io/originated-from-cr-name": "chat",
         "ray.io/originated-from-crd": "RayJob"}, ("RayJob", "chat")),
        ("Deployment", "m-predictor", {"serving.kserve.io/inferenceservice": "m"},
         ("InferenceService", "m")),
    ],
)  # fmt: skip
def test_labels_name_the_owner_of_an_object_that_cannot_be_read(
    kind: str, name: str, labels: dict[str, str], expected: tuple[str, str] | None
) -> None:
    found = find_by_labels(as_pod(pod(labels=labels)).metadata, TopOwner(kind, name, None))
    assert (found and (found.kind, found.name)) == expected
