"""A node group through the loop and AWS's stand-in: written once, verified, undone exactly."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import boto3  # noqa: TID253  (the test speaks to AWS's stand-in)
import msgspec
import pytest

from actions.loop.actor import Actor
from actions.plan import ActionPlan
from actions.policy.model import Stage
from fallow.action_models import Decision, Facts
from fallow.settings import Settings
from runtime.operations.acting import live_actor
from tests.actions.loop import cutting
from tests.actions.loop.site import POLICY, Evidence, Site
from tests.servers import s3

SHRINKS = msgspec.structs.replace(POLICY, stages=(*POLICY.stages[:-1], Stage("act", do=("pool",))))
SAID = {
    "same_type": {"nodes": 3},
    "today": {"nodes": 5, "gpus": 40},
    "eks_cluster": "prod",
    "capabilities": ["pool"],
    "allowed_namespaces": ["*"],
}
SIZES = {"minSize": 5, "maxSize": 10, "desiredSize": 5}


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Run AWS's stand-in with a node group, and let the credential chain lead there."""
    pytest.importorskip("moto.server")
    with s3.serving() as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL", url)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
        made = boto3.client("eks", region_name="us-east-1")
        role = "arn:aws:iam::123456789012:role/r"
        made.create_cluster(name="prod", roleArn=role, resourcesVpcConfig={})
        made.create_nodegroup(
            clusterName="prod",
            nodegroupName="gpus",
            subnets=["subnet-1"],
            nodeRole=role,
            scalingConfig=SIZES,
        )
        yield made


def sizes(aws: Any) -> Any:
    found = aws.describe_nodegroup(clusterName="prod", nodegroupName="gpus")
    return found["nodegroup"]["scalingConfig"]


class Pools(Evidence):
    """A pool that holds more nodes than its work needs."""

    def cases(self, now: datetime) -> list[Facts]:
        return [self._facts("NodePool", "gpus", now)]

    def again(self, facts: Facts, now: datetime) -> Facts | None:
        del facts
        return self.cases(now)[0]


def decide(policy: Any, facts: Facts, spent: Any, now: datetime) -> Decision:
    made = cutting.decide(policy, facts, spent, now)
    return msgspec.structs.replace(made, parameters=SAID)


def plan(policies: Any, facts: Any, spent: Any, now: datetime, histories: Any) -> ActionPlan:
    made = cutting.plan(policies, facts, spent, now, histories)
    return ActionPlan(
        tuple(msgspec.structs.replace(d, parameters=SAID) for d in made.decisions), ()
    )


def shrinking(site: Site) -> Actor:
    """Let the cluster have a node of the group, and an actor that may shrink it."""
    node = site.store.list("Node")[0]["metadata"]["name"]
    marks = {"eks.amazonaws.com/nodegroup": "gpus", "topology.kubernetes.io/region": "us-east-1"}
    site.store.patch("Node", node, "", {"metadata": {"labels": marks}})
    return cutting.actor(
        site,
        policies=[SHRINKS],
        decider=decide,
        planner=plan,
        evidence=Pools(site.server.url, lambda: site.now),
        ways=live_actor.open_transports(Settings()),
    )


def test_a_node_group_is_shrunk_verified_and_undone_through_the_loop(site: Site, aws: Any) -> None:
    actor = shrinking(site)
    state = site.done(actor)
    assert sizes(aws) == {"minSize": 3, "maxSize": 5, "desiredSize": 5}
    assert state.writes.sent == {0: 200}
    aws.update_nodegroup_config(
        clusterName="prod", nodegroupName="gpus", scalingConfig={"desiredSize": 4}
    )
    actor.undo(state.action.id, "ann")
    assert sizes(aws) == {**SIZES, "desiredSize": 4}, "what the autoscaler wrote is its own"


def test_a_node_group_that_somebody_sized_again_is_not_fought(site: Site, aws: Any) -> None:
    actor = shrinking(site)
    state = site.acted(actor)
    aws.update_nodegroup_config(
        clusterName="prod", nodegroupName="gpus", scalingConfig={"minSize": 5}
    )
    site.pass_time(minutes=3)
    actor.turn(dry_run=False)
    assert state.outcome is not None
    assert state.outcome.result == "reverted"
    assert sizes(aws)["minSize"] == 5
