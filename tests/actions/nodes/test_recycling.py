"""A sick node is cordoned; drained only where a policy asks, and never over somebody's word."""

from typing import Any

import pytest

from actions.nodes.recycling import RecycleExecutor
from fallow.action_models import Intent
from fallow.errors import RefusedError
from tests.actions.places import Object, Place, bare
from tests.actions.reclaim.examples import POD, decided

DRAIN = {"capabilities": ["drain"]}


def node(place: Place, **more: Any) -> Object:
    return place.make("Node", {"metadata": {"name": f"{place.name}-n1", **more}, "spec": {}})


def pod(place: Place, name: str, **meta: Any) -> Object:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "r-1"}
    meta = {"ownerReferences": [{**owner, "controller": True}], **meta}
    spec = {**POD, "nodeName": f"{place.name}-n1", "volumes": [{"name": "s", "emptyDir": {}}]}
    return place.make("Pod", {"metadata": {"name": name, **meta}, "spec": spec})


def intended(place: Place, **parameters: Any) -> Intent:
    about = decided("Node", "", f"{place.name}-n1", "recycle node", parameters=parameters)
    return RecycleExecutor().writes(about, place.door)


def test_a_node_is_cordoned_and_the_undo_restores_it_exactly(place: Place) -> None:
    before = node(place)
    pod(place, "stays")

    intent = intended(place, why="XID 79 twice")
    place.send(*intent.changes, dry_run=True)
    assert place.get("Node", f"{place.name}-n1") == before
    place.send(*intent.changes)

    after = place.get("Node", f"{place.name}-n1")
    assert after is not None
    assert after["spec"]["unschedulable"] is True
    assert after["metadata"]["annotations"]["fallow.dev/recycle"] == "XID 79 twice"
    assert intent.capability == "cordon"
    assert intent.frees == ()
    assert place.get("Pod", "stays") is not None
    place.send(*intent.undo)
    assert bare(place.get("Node", f"{place.name}-n1")) == bare(before)


def test_a_drain_evicts_what_a_controller_starts_again_and_leaves_the_nodes_own(
    place: Place,
) -> None:
    node(place)
    pod(place, "worker")
    own = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "d-1"}
    pod(place, "daemon", ownerReferences=[{**own, "controller": True}])
    pod(place, "static", annotations={"kubernetes.io/config.mirror": "x"}, ownerReferences=[])

    intent = intended(place, **DRAIN)

    evictions = [c for c in intent.changes if c.path.endswith("/eviction")]
    assert [c.target.name for c in evictions] == ["worker"]
    assert [(h.pod, h.gpus) for h in intent.frees] == [("worker", 2)]
    assert intent.lost == "memory of 1 pods since their last checkpoint, and 1 emptyDir volumes"
    place.send(*intent.changes)
    worker = place.get("Pod", "worker")
    assert worker is None or "deletionTimestamp" in worker["metadata"]
    for name in ("daemon", "static"):
        kept = place.get("Pod", name)
        assert kept is not None
        assert "deletionTimestamp" not in kept["metadata"]


def test_a_budget_is_asked_by_the_dry_run_of_every_eviction(place: Place) -> None:
    node(place)
    pod(place, "worker", labels={"app": "x"})
    ready = {"conditions": [{"type": "Ready", "status": "True"}], "phase": "Running"}
    place.patch("Pod", "worker", {"status": ready}, part="status")
    place.make(
        "PodDisruptionBudget",
        {"metadata": {"name": "b"}, "spec": {"selector": {"matchLabels": {"app": "x"}}}},
        status={"disruptionsAllowed": 0, "observedGeneration": 1, "currentHealthy": 1},
    )
    evict = intended(place, **DRAIN).changes[-1]
    answer = place.door.send(evict, dry_run=True)
    assert (answer.verdict, answer.cause) == ("throttled", "budget")


@pytest.mark.parametrize(
    ("meta", "said"),
    [
        ({"ownerReferences": []}, "has no controller"),
        (
            {"annotations": {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}},
            "must not be evicted",
        ),
        ({"annotations": {"karpenter.sh/do-not-disrupt": "true"}}, "must not be evicted"),
        ({"annotations": {"fallow.dev/protect": "true"}}, "must not be evicted"),
    ],
    ids=["bare", "safe-to-evict", "do-not-disrupt", "ours"],
)
def test_one_pod_that_must_stay_keeps_the_whole_node_from_being_drained(
    place: Place, meta: dict[str, Any], said: str
) -> None:
    node(place)
    pod(place, "worker")
    pod(place, "stays", **meta)
    with pytest.raises(RefusedError, match=said):
        intended(place, **DRAIN)
    assert intended(place).capability == "cordon"


def test_control_planes_strangers_and_cordoned_nodes_are_refused(place: Place) -> None:
    with pytest.raises(RefusedError, match="is gone"):
        intended(place)
    node(place, labels={"node-role.kubernetes.io/control-plane": ""})
    with pytest.raises(RefusedError, match="of the control plane"):
        intended(place)
    name = f"{place.name}-n1"
    place.patch(
        "Node", name, {"metadata": {"labels": {"node-role.kubernetes.io/control-plane": None}}}
    )
    another = decided("Node", "", name, "recycle node", uid="another")
    with pytest.raises(RefusedError, match="another node of that name"):
        RecycleExecutor().writes(another, place.door)
    place.patch("Node", name, {"spec": {"unschedulable": True}})
    with pytest.raises(RefusedError, match="cordoned by somebody already"):
        intended(place)
