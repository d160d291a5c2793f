"""The scale subresource, of built-in kinds and of custom ones."""

import pytest

from tests.simulator.kube.conftest import Kube, Space, replicated

APPS, FLOW = "apps/v1", "kubeflow.org/v1"


@pytest.mark.parametrize("plural", ["deployments", "statefulsets", "replicasets"])
def test_zero_replicas_are_left_out(space: Space, plural: str) -> None:
    space.create(plural, replicated(replicas=3), APPS)
    before = space.get(plural, "web", "scale", APPS).body
    assert (before["kind"], before["apiVersion"]) == ("Scale", "autoscaling/v1")
    assert before["spec"] == {"replicas": 3}
    assert before["status"] == {"replicas": 0, "selector": "app=web"}
    uid = before["metadata"]["uid"]
    zero = space.patch(
        plural, "web", {"metadata": {"uid": uid}, "spec": {"replicas": 0}}, group=APPS, part="scale"
    )
    assert (zero.code, zero.body["spec"]) == (200, {})
    item = space.get(plural, "web", group=APPS).body
    assert (item["spec"]["replicas"], item["metadata"]["generation"]) == (0, 2)


def test_replicas_that_nobody_says_are_one(space: Space) -> None:
    space.create("statefulsets", replicated(), APPS)
    assert space.get("statefulsets", "web", "scale", APPS).body["spec"] == {"replicas": 1}


def test_fewer_than_none_is_refused(space: Space) -> None:
    space.create("statefulsets", replicated(), APPS)
    body = {"spec": {"replicas": -1}}
    assert space.patch("statefulsets", "web", body, group=APPS, part="scale").code == 422


def test_a_dry_scale_stores_nothing(space: Space) -> None:
    space.create("statefulsets", replicated(replicas=2), APPS)
    body = {"spec": {"replicas": 5}}
    tried = space.patch("statefulsets", "web", body, group=APPS, part="scale", dryRun="All")
    assert tried.body["spec"] == {"replicas": 5}
    assert space.get("statefulsets", "web", "scale", APPS).body["spec"] == {"replicas": 2}


def test_a_custom_kind_scales_where_its_definition_says(space: Space) -> None:
    spec = {"pytorchReplicaSpecs": {"Worker": {"replicas": 4}, "Master": {"replicas": 1}}}
    item = {"apiVersion": FLOW, "kind": "PyTorchJob", "metadata": {"name": "t"}, "spec": spec}
    space.create("pytorchjobs", item, FLOW)
    assert space.get("pytorchjobs", "t", "scale", FLOW).body["spec"] == {"replicas": 4}
    body = {"spec": {"replicas": 1}}
    assert space.patch("pytorchjobs", "t", body, group=FLOW, part="scale").code == 200
    after = space.get("pytorchjobs", "t", group=FLOW).body["spec"]["pytorchReplicaSpecs"]
    assert after == {"Worker": {"replicas": 1}, "Master": {"replicas": 1}}


def test_the_scale_of_replicas_that_are_not_set_is_an_error(kube: Kube, space: Space) -> None:
    name = f"pool-{space.name}"
    item = {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": name}}
    pools = "/apis/karpenter.sh/v1/nodepools"
    assert kube.ask("POST", pools, {**item, "spec": {"limits": {}}}).code == 201
    answer = kube.ask("GET", f"{pools}/{name}/scale")
    assert (answer.code, answer.body["reason"]) == (500, "InternalError")
    assert "spec replicas field" in answer.body["message"]


def test_kinds_without_a_scale_have_none(space: Space) -> None:
    space.pod()
    assert space.get("pods", "p", "scale").code == 404
