"""Pools shrink through whoever scales them; what nobody scales is a manifest for people."""

from collections.abc import Iterator
from typing import Any

import boto3  # noqa: TID253  (the test speaks to AWS's stand-in)
import pytest

from actions.nodes.eks import EksClient, parse_group
from actions.nodes.pools import SHRINK_EMPTY, SHRINK_POOL, PoolExecutor
from fallow.action_models import Intent
from fallow.errors import RefusedError, TemporaryError, UsageError
from tests.actions.places import Place, bare
from tests.actions.reclaim.examples import decided
from tests.servers import s3

FOUND = {"same_type": {"nodes": 3}, "today": {"nodes": 5, "gpus": 40}}

NODE_CLASS = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "gpus"}
TEMPLATE: dict[str, Any] = {"template": {"spec": {"nodeClassRef": NODE_CLASS, "requirements": []}}}


def intended(
    place: Place, name: str, verb: str = SHRINK_POOL, aws: EksClient | None = None, **more: Any
) -> Intent:
    about = decided("NodePool", "", name, verb, parameters={**FOUND, **more})
    return PoolExecutor(aws).writes(about, place.door)


@pytest.mark.parametrize("limits", [None, {"nvidia.com/gpu": "64"}, {"cpu": "1000"}])
def test_a_karpenter_pool_is_limited_and_the_undo_is_exact(place: Place, limits: Any) -> None:
    name = f"{place.name}-pool"
    spec = {**TEMPLATE, **({"limits": limits} if limits else {})}
    before = place.make("NodePool", {"metadata": {"name": name}, "spec": spec})

    intent = intended(place, name)
    place.send(*intent.changes)

    after = place.get("NodePool", name)
    assert after is not None
    assert after["spec"]["limits"] == {**(limits or {}), "nvidia.com/gpu": "24"}
    assert after["spec"]["disruption"]["consolidateAfter"] == "10m"
    place.send(*intent.undo)
    assert bare(place.get("NodePool", name)) == bare(before)


def test_a_pool_with_empty_nodes_is_let_to_consolidate_and_not_limited(place: Place) -> None:
    name = f"{place.name}-pool"
    disruption = {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "Never"}
    spec = {**TEMPLATE, "disruption": disruption}
    place.make("NodePool", {"metadata": {"name": name}, "spec": spec})
    (change,) = intended(place, name, SHRINK_EMPTY).changes
    assert change.body == {"spec": {"disruption": {"consolidateAfter": "10m"}}}
    place.send(change)
    with pytest.raises(RefusedError, match="consolidates its empty nodes already"):
        intended(place, name, SHRINK_EMPTY)


def test_a_pool_that_is_smaller_already_is_refused(place: Place) -> None:
    name = f"{place.name}-pool"
    limits, disruption = {"nvidia.com/gpu": "16"}, {"consolidateAfter": "0s"}
    spec = {**TEMPLATE, "limits": limits, "disruption": disruption}
    place.make("NodePool", {"metadata": {"name": name}, "spec": spec})
    with pytest.raises(RefusedError, match="limited to 16 GPUs already"):
        intended(place, name)


def test_a_pool_that_nothing_scales_is_a_manifest_and_no_write(place: Place) -> None:
    name = f"{place.name}-group"
    place.make("Node", {"metadata": {"name": name, "labels": {"pool": name}}, "spec": {}})
    intent = intended(place, name)
    assert intent.changes == ()
    assert "nvidia.com/gpu: '24'" in intent.notes[0]


def test_an_unknown_pool_or_size_is_refused(place: Place) -> None:
    with pytest.raises(RefusedError, match="no node of sim is of a pool 'nowhere'"):
        intended(place, "nowhere")
    name = f"{place.name}-pool"
    place.make("NodePool", {"metadata": {"name": name}, "spec": TEMPLATE})
    with pytest.raises(RefusedError, match="does not say how many it needs"):
        intended(place, name, same_type=None)


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    pytest.importorskip("moto.server")
    with s3.serving() as url:
        yield url


@pytest.fixture
def aws(endpoint: str) -> Iterator[Any]:
    made = boto3.client(
        "eks",
        region_name="us-east-1",
        endpoint_url=endpoint,
        aws_access_key_id="test",
        aws_secret_access_key="test",
    )
    role = "arn:aws:iam::123456789012:role/r"
    made.create_cluster(name="prod", roleArn=role, resourcesVpcConfig={})
    made.create_nodegroup(
        clusterName="prod",
        nodegroupName="gpus",
        subnets=["subnet-1"],
        nodeRole=role,
        scalingConfig={"minSize": 5, "maxSize": 10, "desiredSize": 5},
    )
    yield made
    made.delete_nodegroup(clusterName="prod", nodegroupName="gpus")
    made.delete_cluster(name="prod")


def eks_node(place: Place, **marks: str) -> None:
    labels = {"eks.amazonaws.com/nodegroup": "gpus", "topology.kubernetes.io/region": "us-east-1"}
    place.make(
        "Node", {"metadata": {"name": f"{place.name}-n", "labels": {**labels, **marks}}, "spec": {}}
    )


def sizes(aws: Any) -> Any:
    return aws.describe_nodegroup(clusterName="prod", nodegroupName="gpus")["nodegroup"][
        "scalingConfig"
    ]


def test_an_eks_group_may_shrink_and_never_forces_a_node_out(place: Place, aws: Any) -> None:
    eks_node(place)
    door = EksClient(lambda _region: aws)
    intent = intended(place, "gpus", aws=door, eks_cluster="prod")
    (change,), (undo,) = intent.changes, intent.undo
    before = sizes(aws)

    assert door.send(change, dry_run=True).ok
    assert sizes(aws) == before
    assert door.send(change, dry_run=False).ok
    assert sizes(aws) == {"minSize": 3, "maxSize": 5, "desiredSize": 5}
    shown = door.get(change.path)
    assert shown is not None
    assert shown["scalingConfig"]["minSize"] == change.becomes["/scalingConfig/minSize"]
    assert door.send(undo, dry_run=False).ok
    assert sizes(aws) == before


def test_an_eks_group_that_does_not_say_its_cluster_is_refused(place: Place, aws: Any) -> None:
    eks_node(place)
    with pytest.raises(RefusedError, match="does not say its region and EKS cluster"):
        intended(place, "gpus", aws=EksClient(lambda _region: aws))
    with pytest.raises(RefusedError, match="has no node group gpus"):
        intended(place, "gpus", aws=EksClient(lambda _region: aws), eks_cluster="other")


def test_another_group_of_that_name_is_a_conflict(place: Place, aws: Any) -> None:
    import msgspec  # noqa: PLC0415

    eks_node(place)
    door = EksClient(lambda _region: aws)
    (change,) = intended(place, "gpus", aws=door, eks_cluster="prod").changes
    other = msgspec.structs.replace(change.target, uid="arn:other")
    answer = door.send(msgspec.structs.replace(change, target=other), dry_run=False)
    assert answer.verdict == "conflict"


def test_aws_that_is_away_is_temporary_and_writes_are_unknown() -> None:
    def away(_region: str) -> Any:
        from botocore.config import Config  # noqa: PLC0415

        return boto3.client(
            "eks",
            region_name="us-east-1",
            endpoint_url="http://127.0.0.1:9",
            aws_access_key_id="t",
            aws_secret_access_key="t",
            config=Config(retries={"total_max_attempts": 1}),
        )

    with pytest.raises(TemporaryError, match="eks/us-east-1/prod/nodegroups/gpus"):
        EksClient(away).get("eks/us-east-1/prod/nodegroups/gpus")


@pytest.mark.parametrize("path", ["", "eks/us/prod/gpus", "gke/us/prod/nodegroups/gpus"])
def test_a_path_that_names_no_group_says_the_form(path: str) -> None:
    with pytest.raises(UsageError, match="eks/REGION/CLUSTER/nodegroups/NAME"):
        parse_group(path)
