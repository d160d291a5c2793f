"""Requests, replicas and MIG layouts: never below what is used, undone exactly."""

from typing import Any

import pytest

from actions.nodes.recycling import CORDON
from actions.resize.mig import MigExecutor
from actions.resize.replicas import ReplicasExecutor
from actions.resize.requests import CPU, MEMORY, RequestsExecutor, get_minimum
from fallow.action_models import Intent
from fallow.errors import RefusedError
from fallow.protocols import Executor
from simulator.kube.server import KubeServer
from simulator.kube.store import ObjectStore
from tests.actions.places import Object, Place, bare
from tests.actions.reclaim.examples import decided, replicated
from tests.simulator.kube.conftest import Kube

GIB = 2**30
USED: dict[str, Any] = {"resource": "cpu", "ask": 4000, "used_p99": 2000, "used_peak": 3000}
ROOM = {"cpu": "64", "memory": "1Ti", "pods": "110", "nvidia.com/gpu": "8"}
AMOUNTS = {"cpu": "16", "memory": "200Gi", "nvidia.com/gpu": "1"}


def intended(
    place: Place, executor: Executor, kind: str, verb: str, name: str = "x", **said: Any
) -> Intent:
    space = "" if kind == "Node" else place.name
    return executor.writes(decided(kind, space, name, verb, parameters=said), place.door)


def deployment(place: Place, replicas: int = 1, **side: str) -> Object:
    spec = replicated(replicas)
    limits = {"nvidia.com/gpu": "1"}
    main = {"name": "main", "image": "b", "resources": {"requests": AMOUNTS, "limits": limits}}
    extra = {"name": "side", "image": "b", "resources": {"requests": {"cpu": "500m", **side}}}
    spec["template"] = {**spec["template"], "spec": {"containers": [extra, main]}}
    return place.make("Deployment", {"metadata": {"name": "x"}, "spec": spec})


def pod(place: Place, owner: Object, name: str = "x-1") -> Object:
    """Make a running pod of a Deployment, as its controllers would."""
    node = f"{place.name}-n"
    if place.get("Node", node) is None:
        place.make(
            "Node", {"metadata": {"name": node}}, status={"allocatable": ROOM, "capacity": ROOM}
        )
    made = place.make(
        "ReplicaSet",
        {
            "metadata": {"name": f"{name}-rs", "ownerReferences": [_ref(owner, "Deployment")]},
            "spec": {"selector": owner["spec"]["selector"], "template": owner["spec"]["template"]},
        },
    )
    return place.make(
        "Pod",
        {
            "metadata": {
                "name": name,
                "labels": {"app": "x"},
                "ownerReferences": [_ref(made, "ReplicaSet")],
            },
            "spec": {**owner["spec"]["template"]["spec"], "nodeName": node},
        },
        status={"phase": "Running"},
    )


def _ref(obj: Object, kind: str) -> Object:
    head = obj["metadata"]
    named = {"name": head["name"], "uid": head["uid"]}
    return {"apiVersion": "apps/v1", "kind": kind, "controller": True, **named}


def test_running_pods_are_resized_in_place_and_the_undo_is_exact(place: Place) -> None:
    before = pod(place, deployment(place))

    intent = intended(place, RequestsExecutor(), "Deployment", CPU, **USED)
    place.send(*intent.changes, dry_run=True)
    place.send(*intent.changes)

    after = place.get("Pod", "x-1")
    assert after is not None
    wanted = [c["resources"]["requests"] for c in after["spec"]["containers"]]
    assert wanted == [{"cpu": "500m"}, {**AMOUNTS, "cpu": "3500m"}]
    assert all(place.holds(c) for c in intent.changes)
    place.send(*intent.undo)
    assert bare(place.get("Pod", "x-1")) == bare(before)
    assert intent.notes == ("a new pod asks for the old amount until its template is changed",)


def guaranteed(place: Place, **more: Any) -> Object:
    """Make a Deployment whose pods are Guaranteed: each limit is its request."""
    spec = replicated(1)
    main = {"name": "main", "image": "b", "resources": {"requests": AMOUNTS, "limits": AMOUNTS}}
    spec["template"] = {**spec["template"], "spec": {"containers": [{**main, **more}]}}
    return place.make("Deployment", {"metadata": {"name": "x"}, "spec": spec})


def test_a_guaranteed_pod_is_resized_with_its_limits(place: Place) -> None:
    before = pod(place, guaranteed(place))
    assert before["status"]["qosClass"] == "Guaranteed"
    intent = intended(place, RequestsExecutor(), "Deployment", CPU, **{**USED, "ask": 4000})
    place.send(*intent.changes, dry_run=True)
    place.send(*intent.changes)
    after = place.get("Pod", "x-1")
    assert after is not None
    lower = {**AMOUNTS, "cpu": "4"}
    assert after["spec"]["containers"][0]["resources"] == {"requests": lower, "limits": lower}
    assert after["status"]["qosClass"] == "Guaranteed"
    assert all(place.holds(c) for c in intent.changes)
    place.send(*intent.undo)
    assert bare(place.get("Pod", "x-1")) == bare(before)


def test_a_guaranteed_template_keeps_its_class(place: Place) -> None:
    before = guaranteed(place)
    intent = intended(place, RequestsExecutor(), "Deployment", CPU, **USED, template=True)
    place.send(*intent.changes)
    after = place.get("Deployment", "x")
    assert after is not None
    lower = {**AMOUNTS, "cpu": "4"}
    resources = after["spec"]["template"]["spec"]["containers"][0]["resources"]
    assert resources == {"requests": lower, "limits": lower}
    place.send(*intent.undo)
    assert bare(place.get("Deployment", "x")) == bare(before)


def test_a_container_that_would_start_anew_is_not_resized_in_place(place: Place) -> None:
    policy = [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]
    pod(place, guaranteed(place, resizePolicy=policy))
    with pytest.raises(RefusedError, match="would restart container main of pod x-1"):
        intended(place, RequestsExecutor(), "Deployment", CPU, **USED)


@pytest.mark.parametrize(
    ("version", "in_place"), [("1.29", False), ("1.32", False), ("1.33", True), ("1.36", True)]
)
def test_a_server_without_resizes_restarts_nothing_unless_the_policy_says_so(
    version: str, *, in_place: bool
) -> None:
    store = ObjectStore(lambda: 1_790_000_000.0, version=version)
    with KubeServer(store) as server:
        place = Place(Kube("stand-in", server.url, store.history.forget), server)
        before = deployment(place)
        pod(place, before)
        if in_place:
            (change,) = intended(place, RequestsExecutor(), "Deployment", CPU, **USED).changes
            assert change.path.endswith("/pods/x-1/resize")
            return
        with pytest.raises(RefusedError, match="has no pods/resize: its pods would start anew"):
            intended(place, RequestsExecutor(), "Deployment", CPU, **USED)
        intent = intended(place, RequestsExecutor(), "Deployment", CPU, **USED, template=True)
        place.send(*intent.changes)
        place.send(*intent.undo)
        assert bare(place.get("Deployment", "x")) == bare(before)


def test_whole_amounts_are_written_as_the_server_stores_them(place: Place) -> None:
    pod(place, deployment(place))
    answer: dict[str, Any] = {"resource": "memory", "ask": 8 * GIB, "used_p99": 1, "used_peak": 1}
    (change,) = intended(place, RequestsExecutor(), "Deployment", MEMORY, **answer).changes
    place.send(change)
    assert set(change.becomes.values()) == {"8Gi"}
    assert place.holds(change)


def test_the_template_is_written_where_a_policy_asks_for_it(place: Place) -> None:
    before = deployment(place)
    used: dict[str, Any] = {
        "resource": "memory",
        "ask": 64 * GIB,
        "used_p99": 40 * GIB,
        "used_peak": 70 * GIB,
    }
    intent = intended(place, RequestsExecutor(), "Deployment", MEMORY, **used, template=True)
    place.send(*intent.changes)
    after = place.get("Deployment", "x")
    assert after is not None
    main = after["spec"]["template"]["spec"]["containers"][1]
    assert main["resources"]["requests"]["memory"] == "70Gi"
    place.send(*intent.undo)
    assert bare(place.get("Deployment", "x")) == bare(before)


@pytest.mark.parametrize(
    ("ask", "p99", "peak", "least"),
    [(4000, 1000, 1000, 4000), (1000, 2000, 1000, 2400), (1000, 1000, 5000, 5000)],
    ids=["asked", "p99 with headroom", "peak"],
)
def test_nothing_goes_below_what_was_used(ask: int, p99: int, peak: int, least: float) -> None:
    answer = {"resource": "cpu", "ask": ask, "used_p99": p99, "used_peak": peak}
    assert get_minimum(decided("Deployment", "n", "x", CPU, parameters=answer), "cpu") == least


@pytest.mark.parametrize("missing", ["ask", "used_p99", "used_peak", "resource"])
def test_what_is_not_known_is_not_lowered(place: Place, missing: str) -> None:
    deployment(place)
    answer = {k: v for k, v in USED.items() if k != missing}
    with pytest.raises(RefusedError, match="is not known, so nothing is lowered"):
        intended(place, RequestsExecutor(), "Deployment", CPU, **answer)


def test_who_asks_for_no_more_is_left_alone(place: Place) -> None:
    pod(place, deployment(place))
    with pytest.raises(RefusedError, match="no more cpu than it needs"):
        intended(place, RequestsExecutor(), "Deployment", CPU, **{**USED, "ask": 20_000})


def test_fewer_replicas_carry_the_busiest_hour_and_never_none(place: Place) -> None:
    before = deployment(place, replicas=4)
    for n in range(4):
        pod(place, before, f"x-{n}")
    executor = ReplicasExecutor()
    intent = intended(place, executor, "Deployment", "ask for fewer GPUs", fewer_gpus=1.5)
    place.send(*intent.changes)
    after = place.get("Deployment", "x")
    assert after is not None
    assert after["spec"]["replicas"] == 2
    place.send(*intent.undo)
    assert bare(place.get("Deployment", "x")) == bare(before)
    with pytest.raises(RefusedError, match="needs its 4 replicas"):
        intended(place, executor, "Deployment", "ask for fewer GPUs", fewer_gpus=3.5)
    with pytest.raises(RefusedError, match="does not say how many GPUs are enough"):
        intended(place, executor, "Deployment", "ask for fewer GPUs")


def test_an_autoscalers_number_and_the_last_replica_are_left_alone(place: Place) -> None:
    pod(place, deployment(place))
    executor = ReplicasExecutor()
    with pytest.raises(RefusedError, match="has one replica"):
        intended(place, executor, "Deployment", "ask for fewer GPUs", fewer_gpus=0.5)
    scaled = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "x"}
    spec = {"scaleTargetRef": scaled, "maxReplicas": 4}
    place.make("HorizontalPodAutoscaler", {"metadata": {"name": "h"}, "spec": spec})
    with pytest.raises(RefusedError, match="scaled by HorizontalPodAutoscaler h"):
        intended(place, executor, "Deployment", "ask for fewer GPUs", fewer_gpus=0.5)


def board(place: Place, **spec: Any) -> tuple[str, Object]:
    name = f"{place.name}-mig"
    labels = {"nvidia.com/mig.config": "all-disabled", "nvidia.com/mig.config.state": "success"}
    return name, place.make("Node", {"metadata": {"name": name, "labels": labels}, "spec": spec})


def test_boards_are_cut_on_a_cordoned_node_that_waits_for_success(place: Place) -> None:
    name, before = board(place)
    answer = {"mig_config": "all-2g.20gb", "processes": 0}
    intent = intended(place, MigExecutor(), "Node", "cut-again", name, **answer)
    cordon, label, again = intent.changes
    assert cordon.becomes == {CORDON: True}
    assert again.when["/metadata/labels/nvidia.com~1mig.config.state"] == "success"
    place.send(cordon, label, again)
    after = place.get("Node", name)
    assert after is not None
    assert after["metadata"]["labels"]["nvidia.com/mig.config"] == "all-2g.20gb"
    assert not after["spec"].get("unschedulable")
    cut = {"metadata": {"labels": {"nvidia.com/mig.config.state": "success"}}}
    place.send(*intent.undo)
    place.patch("Node", name, cut)  # mig-manager's word
    assert bare(place.get("Node", name)) == bare(before)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"processes": 0}, "no layout is named"),
        ({"mig_config": "all-disabled", "processes": 0}, "already"),
        ({"mig_config": "all-1g.10gb"}, "whether processes use its devices is not known"),
        ({"mig_config": "all-1g.10gb", "processes": 2}, "whether processes use its devices"),
    ],
    ids=["no layout", "has it", "unknown", "processes"],
)
def test_boards_that_may_be_in_use_are_never_cut(
    place: Place, said: dict[str, Any], why: str
) -> None:
    name, _ = board(place)
    with pytest.raises(RefusedError, match=why):
        intended(place, MigExecutor(), "Node", "cut-again", name, **said)


def test_of_a_pool_the_first_node_that_may_be_is_cut(place: Place) -> None:
    name, _ = board(place)
    answer = {"mig_config": "all-1g.10gb"}
    busy, unknown = {"node": "x", "processes": 1}, {"node": name, "processes": None}
    nodes = [{**busy, **answer}, {**unknown, **answer}]
    with pytest.raises(RefusedError, match=r"no node may be cut again: .*is not known"):
        intended(place, MigExecutor(), "NodePool", "cut-again", "pool", nodes=nodes)
    nodes.append({"node": name, "processes": 0, **answer})
    intent = intended(place, MigExecutor(), "NodePool", "cut-again", "pool", nodes=nodes)
    assert (intent.target.kind, intent.target.name) == ("Node", name)
    with pytest.raises(RefusedError, match="no node may be cut again"):
        intended(place, MigExecutor(), "NodePool", "cut-again", "pool")


def test_a_node_with_gpu_pods_or_a_strangers_cordon_is_not_cut(place: Place) -> None:
    name, _ = board(place)
    answer = {"mig_config": "all-1g.10gb", "processes": 0}
    limits = {"nvidia.com/mig-1g.10gb": "1"}
    container = {"name": "m", "image": "b", "resources": {"limits": limits}}
    place.make(
        "Pod", {"metadata": {"name": "p"}, "spec": {"nodeName": name, "containers": [container]}}
    )
    with pytest.raises(RefusedError, match="has GPU pods: p"):
        intended(place, MigExecutor(), "Node", "cut-again", name, **answer)
    place.patch("Node", name, {"spec": {"unschedulable": True}})
    with pytest.raises(RefusedError, match="cordoned by somebody already"):
        intended(place, MigExecutor(), "Node", "cut-again", name, **answer)


OWN: dict[str, Any] = {
    "resource": "memory", "container": "main", "ask": 46 * GIB, "used_most": 40 * GIB,
    "history_days": 7.0, "oom_killed": False,
}  # fmt: skip
OWN_CPU: dict[str, Any] = {
    "resource": "cpu", "container": "side", "ask": 120, "used_p95": 118.0, "history_days": 7.0,
}  # fmt: skip


def requests_of(place: Place) -> dict[str, Any]:
    after = place.get("Pod", "x-1")
    assert after is not None
    return {c["name"]: c["resources"]["requests"] for c in after["spec"]["containers"]}


def test_a_named_container_is_lowered_to_its_own_week(place: Place) -> None:
    before = pod(place, deployment(place))
    cpu = intended(place, RequestsExecutor(), "Deployment", CPU, **OWN_CPU)
    place.send(*cpu.changes)
    assert requests_of(place) == {"side": {"cpu": "120m"}, "main": AMOUNTS}
    place.send(*cpu.undo)
    memory = intended(place, RequestsExecutor(), "Deployment", MEMORY, **OWN)
    place.send(*memory.changes)
    assert requests_of(place) == {"side": {"cpu": "500m"}, "main": {**AMOUNTS, "memory": "46Gi"}}
    place.send(*memory.undo)
    assert bare(place.get("Pod", "x-1")) == bare(before)


def test_a_named_container_of_a_template_is_lowered(place: Place) -> None:
    deployment(place)
    intent = intended(place, RequestsExecutor(), "Deployment", MEMORY, **OWN, template=True)
    place.send(*intent.changes)
    after = place.get("Deployment", "x")
    assert after is not None
    spec = after["spec"]["template"]["spec"]["containers"]
    assert [c["resources"]["requests"].get("memory") for c in spec] == [None, "46Gi"]


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"history_days": 6.9}, "6.9 days of use are known of container main, 7 are needed"),
        ({"history_days": None}, "7 are needed"),
        ({"oom_killed": True}, "was killed for its memory"),
        ({"oom_killed": None}, "was killed for its memory"),
        ({"used_most": None}, "is not known"),
        ({"ask": None}, "is not known"),
        ({"resource": "cpu"}, "is not known"),
        ({"container": "other"}, "asks for no more memory than it needs"),
    ],
)
def test_what_its_own_week_does_not_show_is_refused(
    place: Place, said: dict[str, Any], why: str
) -> None:
    pod(place, deployment(place))
    with pytest.raises(RefusedError, match=why):
        intended(place, RequestsExecutor(), "Deployment", MEMORY, **{**OWN, **said})


def test_never_below_the_most_memory_with_its_margin(place: Place) -> None:
    pod(place, deployment(place))
    low = {**OWN, "ask": GIB}
    intent = intended(place, RequestsExecutor(), "Deployment", MEMORY, **low)
    place.send(*intent.changes)
    assert requests_of(place)["main"]["memory"] == "46Gi"


@pytest.mark.parametrize("side", ["lastState", "state"])
@pytest.mark.parametrize(
    ("container", "reason", "refused"),
    [("main", "OOMKilled", True), ("side", "OOMKilled", False), ("main", "Error", False)],
)
def test_a_container_that_was_killed_for_memory_is_never_lowered(
    place: Place, side: str, container: str, reason: str, refused: bool
) -> None:
    pod(place, deployment(place))
    ended = {
        "name": container, "image": "b", "imageID": "", "ready": True, "restartCount": 1,
        side: {"terminated": {"reason": reason, "exitCode": 137}},
    }  # fmt: skip
    place.patch("Pod", "x-1", {"status": {"containerStatuses": [ended]}}, part="status")
    if refused:
        with pytest.raises(RefusedError, match="container main of pod x-1 was killed"):
            intended(place, RequestsExecutor(), "Deployment", MEMORY, **OWN)
    else:
        assert intended(place, RequestsExecutor(), "Deployment", MEMORY, **OWN).changes
