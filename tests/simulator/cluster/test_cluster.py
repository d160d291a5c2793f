"""The cluster as a whole: devices are exclusive, failures cost what they cost, time repeats."""

import time
from collections import defaultdict
from collections.abc import Callable
from math import inf
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fallow.errors import FallowError, UsageError
from simulator.models import DeviceAllocation

Make = Callable[..., Any]
EPSILON = 1e-9


def overlaps(tenures: list[DeviceAllocation]) -> float:
    """Return the greatest sum of shares that one device ever bore."""
    steps: defaultdict[int, list[tuple[float, float]]] = defaultdict(list)
    for allocation in tenures:
        for device in allocation.devices:
            steps[device] += [
                (allocation.start_s, allocation.share),
                (allocation.end_s, -allocation.share),
            ]
    most = 0.0
    for changes in steps.values():
        load = 0.0
        for _, share in sorted(changes):
            load += share
            most = max(most, load)
    return most


@st.composite
def stories(draw: Any) -> list[tuple[str, int, int]]:
    acts = st.sampled_from(["job", "notebook", "deploy", "stop", "finish", "lose", "spot", "wait"])
    return draw(  # type: ignore[no-any-return]
        st.lists(st.tuples(acts, st.integers(1, 4), st.integers(0, 9)), min_size=3, max_size=25)
    )


def tell(world: Any, shapes: Any, story: list[tuple[str, int, int]]) -> None:
    for step, (act, gpus, pick) in enumerate(story):
        name = f"w{step}"
        match act:
            case "job":
                world.make("Job", name, shapes.job(gpus, width=2))
            case "notebook":
                world.make("Notebook", name, {"template": shapes.template(gpus)})
            case "deploy":
                world.make("Deployment", name, shapes.deployment(2, gpus, app=name))
            case "stop":
                stop(world, pick)
            case "finish":
                running = [p["metadata"]["uid"] for p in world.pods("Running")]
                for uid in running[pick % 5 : pick % 5 + 1]:
                    world.cluster.finish(uid, world.now_s, ok=pick % 2 == 0)
            case "lose" | "spot":
                lose(world, act, pick)
        world.run(pick * 60)


def stop(world: Any, pick: int) -> None:
    every = world.store.list("Deployment") + world.store.list("Job")
    for chosen in every[pick % 5 : pick % 5 + 1]:
        body: Any = {"spec": {"replicas": 0}}
        if chosen["kind"] == "Job":
            body = {"spec": {"suspend": True}}
        world.patch(chosen["kind"], chosen["metadata"]["name"], body)


def lose(world: Any, act: str, pick: int) -> None:
    nodes = sorted({d.node for d in world.cluster.devices})
    why = "spot" if act == "spot" else ("node-lost", "xid", "cordoned")[pick % 3]
    index = 0 if why == "xid" else None
    node = nodes[pick % len(nodes)]
    world.cluster.lose(node, world.now_s, why, world.now_s + 900, index=index)


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(story=stories(), placement=st.sampled_from(["first-fit", "best-fit", "fgd"]))
def test_whatever_happens_no_device_is_held_twice_or_while_it_is_out(
    story: list[tuple[str, int, int]], placement: str, small: Make, shapes: Any
) -> None:
    world = small({"h100": 1, "h100-spot": 1, "l4-shared": 1}, placement=placement)
    tell(world, shapes, story)
    assert overlaps(world.cluster.allocations) <= 1 + EPSILON
    for outage in world.cluster.outages:
        for reply in world.cluster.allocations:
            if outage.device in reply.devices:
                assert reply.end_s <= outage.start_s or reply.start_s >= outage.end_s
    open_now = {t.holder.uid: t for t in world.cluster.allocations if t.end_s == inf}
    alive = {p["metadata"]["uid"] for p in world.pods() if "nodeName" in p["spec"]}
    assert open_now.keys() <= alive
    for pod in world.pods("Running"):
        reply = open_now.get(pod["metadata"]["uid"])
        if reply is not None:
            nodes = {world.cluster.devices[d].node for d in reply.devices}
            assert nodes == {pod["spec"]["nodeName"]}


def test_the_same_seed_tells_the_same_story_and_another_seed_another(
    small: Make, shapes: Any
) -> None:
    story = [("job", 2, 3), ("notebook", 1, 5), ("deploy", 1, 9), ("lose", 1, 0), ("stop", 1, 2)]

    def told(seed: int) -> tuple[list[DeviceAllocation], list[Any]]:
        world = small({"h100": 1, "h100-spot": 1}, seed=seed)
        tell(world, shapes, story)
        world.run(3600)
        return world.cluster.allocations, world.store.list("Pod")

    assert told(7) == told(7)
    assert told(7) != told(8)


def test_pods_get_what_they_asked_for_whole_sliced_or_cut(small: Make, shapes: Any) -> None:
    world = small({"h100": 1, "l4-shared": 1, "h100-mig": 1, "a100-mig": 1})

    def bring(name: str, node: str, resource: str, count: int) -> None:
        body = shapes.template(0, nodeSelector={"kubernetes.io/hostname": node})
        body["spec"]["containers"][0]["resources"]["limits"] |= {resource: str(count)}
        toleration = {"key": "nvidia.com/gpu", "operator": "Exists"}
        body["spec"]["tolerations"] = [toleration]
        world.make("Pod", name, body["spec"])

    bring("whole", "h100-0", "nvidia.com/gpu", 2)
    bring("sliced", "l4-shared-0", "nvidia.com/gpu", 1)
    bring("cut", "h100-mig-0", "nvidia.com/mig-3g.40gb", 1)
    bring("single", "a100-mig-0", "nvidia.com/gpu", 1)
    world.run(600)
    found = {t.holder.pod: t for t in world.cluster.allocations}
    profiles = {
        name: [world.cluster.devices[d].profile for d in t.devices] for name, t in found.items()
    }
    assert profiles == {
        "whole": [None, None],
        "sliced": [None],
        "cut": ["3g.40gb"],
        "single": ["1g.5gb"],
    }
    assert {name: t.share for name, t in found.items()} == {
        "whole": 1,
        "sliced": 0.25,
        "cut": 1,
        "single": 1,
    }


def test_exactly_the_free_gpus_are_given_and_the_rest_wait(small: Make, shapes: Any) -> None:
    world = small({"h100": 3})
    world.make("Deployment", "d", shapes.deployment(8, gpus=5))
    world.run(600)
    assert len(world.pods("Running")) == 3
    waiting = world.pods("Pending")
    assert len(waiting) == 5
    answer = waiting[0]["status"]["conditions"][0]
    assert answer["reason"] == "Unschedulable"
    assert "0/3 nodes are available: 3 Insufficient nvidia.com/gpu" in answer["message"]
    assert len(world.events("FailedScheduling")) == 5
    assert len(world.events("Scheduled")) == 3


def test_the_higher_priority_evicts_the_lower_and_waits_for_its_grace(
    small: Make, shapes: Any
) -> None:
    world = small({"h100": 1})
    world.make("Deployment", "low", shapes.deployment(8, app="low"))
    world.run(600)
    high = shapes.deployment(1, gpus=4, app="high")
    high["template"]["spec"]["priority"] = 100
    world.make("Deployment", "high", high)
    world.settle()
    assert len(world.events("Preempted")) == 4
    assert world.get("Deployment", "high")["status"]["readyReplicas"] == 0
    world.run(600)
    assert world.get("Deployment", "high")["status"]["readyReplicas"] == 1
    assert world.get("Deployment", "low")["status"]["readyReplicas"] == 4


def test_a_lost_node_loses_its_work_at_once_and_its_pods_after_340_seconds(
    small: Make, shapes: Any
) -> None:
    world = small({"h100": 1})
    world.make("Deployment", "d", shapes.deployment(2))
    world.run(600)
    lost_s = world.now_s
    world.cluster.lose("h100-0", lost_s, "node-lost", lost_s + 3600)
    world.run(339)
    assert {t.end_s for t in world.cluster.allocations} == {lost_s}
    assert {o.why for o in world.cluster.outages} == {"node-lost"}
    ready = next(
        c for c in world.get("Node", "h100-0")["status"]["conditions"] if c["type"] == "Ready"
    )
    assert ready["status"] == "Unknown"
    before = set(world.names())
    world.run(1)
    assert not before & set(world.names())
    world.run(3600)
    assert world.held() == 2
    assert [o.end_s for o in world.cluster.outages] == [lost_s + 3600] * 8


def test_a_node_that_comes_back_in_time_runs_its_pods_again_where_they_were(
    small: Make, shapes: Any
) -> None:
    world = small({"h100": 1})
    world.make("Deployment", "d", shapes.deployment(2))
    world.run(600)
    before = [t.devices for t in world.cluster.allocations]
    world.cluster.lose("h100-0", world.now_s, "node-lost", world.now_s + 120)
    world.run(600)
    again = [t.devices for t in world.cluster.allocations if t.end_s == inf]
    assert again == before
    assert {p["status"]["containerStatuses"][0]["restartCount"] for p in world.pods()} == {1}


def test_a_spot_node_gives_two_minutes_notice_and_comes_back_empty(
    small: Make, shapes: Any
) -> None:
    world = small({"h100-spot": 1, "h100": 1})
    spec = shapes.deployment(2)
    spec["template"]["spec"]["nodeSelector"] = {"karpenter.sh/nodepool": "h100-spot"}
    world.make("Deployment", "d", spec)
    world.run(600)
    world.cluster.lose("h100-spot-0", world.now_s, "spot", world.now_s + 1800)
    world.run(1)
    taints = {t["key"] for t in world.get("Node", "h100-spot-0")["spec"]["taints"]}
    assert "aws-node-termination-handler/spot-itn" in taints
    assert world.cluster.outages == []
    world.run(119)
    assert world.store.get("Node", "h100-spot-0") is None
    assert len(world.cluster.outages) == 8
    assert len(world.pods("Pending")) == 2
    world.run(2400)
    assert len(world.pods("Running")) == 2


def test_a_broken_board_fails_its_pod_and_is_offered_no_more(small: Make, shapes: Any) -> None:
    world = small({"h100": 1}, placement="first-fit")
    world.make("Job", "j", shapes.job())
    world.run(600)
    (device,) = world.cluster.allocations[0].devices
    index = world.cluster.devices[device].index
    world.cluster.lose("h100-0", world.now_s, "xid", world.now_s + 86_400, index=index)
    world.run(600)
    assert world.get("Node", "h100-0")["status"]["allocatable"]["nvidia.com/gpu"] == "7"
    assert world.get("Job", "j")["status"]["failed"] == 1
    assert world.cluster.allocations[-1].devices != (device,)
    assert [(o.device, o.why) for o in world.cluster.outages] == [(device, "xid")]


def test_a_cordon_through_the_api_keeps_what_runs_and_counts_the_free(
    small: Make, shapes: Any
) -> None:
    world = small({"h100": 1})
    world.make("Deployment", "d", shapes.deployment(3))
    world.run(600)
    world.patch("Node", "h100-0", {"spec": {"unschedulable": True}})
    world.settle()
    assert world.held() == 3
    assert len(world.cluster.outages) == 5
    world.patch("Deployment", "d", {"spec": {"replicas": 0}}, subresource="scale")
    world.run(600)
    assert len(world.cluster.outages) == 8
    world.patch("Node", "h100-0", {"spec": {"unschedulable": None}})
    world.settle()
    assert all(o.end_s == world.now_s for o in world.cluster.outages)


def test_a_container_that_fails_starts_again_in_its_pod_ever_later(
    small: Make, shapes: Any
) -> None:
    world = small({"h100": 1})
    world.make("Deployment", "d", shapes.deployment(1))
    world.run(600)
    (uid,) = [p["metadata"]["uid"] for p in world.pods()]
    for times, wait in enumerate((10, 20), start=1):
        world.cluster.finish(uid, world.now_s, ok=False)
        world.run(wait - 1)
        (status,) = world.pods()[0]["status"]["containerStatuses"]
        assert (status["ready"], status["restartCount"]) == (False, times)
        world.run(1)
        (status,) = world.pods()[0]["status"]["containerStatuses"]
        assert status["ready"]
    assert len(world.cluster.allocations) == 1, "its devices stay its own"


def test_a_pod_says_how_long_it_takes_to_stop(small: Make, shapes: Any) -> None:
    world = small({"h100": 1})
    spec = shapes.deployment(1)
    spec["template"]["metadata"]["annotations"] = {"simulator.fallow/stop-seconds": "5"}
    world.make("Deployment", "d", spec)
    world.run(600)
    world.patch("Deployment", "d", {"spec": {"replicas": 0}}, subresource="scale")
    world.run(4)
    assert world.held() == 1
    world.run(1)
    assert world.held() == 0


def test_events_are_forgotten_after_an_hour(small: Make, shapes: Any) -> None:
    world = small({"h100": 1})
    world.make("Deployment", "d", shapes.deployment(1))
    world.run(600)
    assert world.events("Scheduled")
    world.run(4000)
    assert world.store.list("Event") == []


@pytest.mark.parametrize(
    ("node", "why", "index", "says"),
    [
        ("h100-9", "node-lost", None, "no node 'h100-9'"),
        ("h100-0", "fire", None, "legal: node-lost, spot, xid, cordoned"),
        ("h100-0", "xid", 8, "no GPU 8 on node 'h100-0' (hint: 0 to 7)"),
        ("h100-0", "xid", None, "no GPU None"),
    ],
)
def test_what_cannot_fail_is_refused(
    node: str, why: str, index: int | None, says: str, small: Make
) -> None:
    world = small({"h100": 1})
    with pytest.raises(UsageError) as caught:
        world.cluster.lose(node, world.now_s, why, world.now_s + 1, index=index)
    assert says in str(caught.value)


def test_an_unknown_placement_names_the_legal_ones(small: Make) -> None:
    with pytest.raises(UsageError, match=r"no placement policy 'worst'.*first-fit, best-fit, fgd"):
        small({"h100": 1}, placement="worst")


def test_two_who_undo_each_other_for_ever_are_named(
    small: Make, shapes: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = small({"h100": 1})
    world.make("Deployment", "d", shapes.deployment(1))
    run = world.cluster._loop.run

    def contrary() -> None:
        run()
        flip = 1 - world.get("Deployment", "d")["spec"]["replicas"]
        world.patch("Deployment", "d", {"spec": {"replicas": flip}})

    monkeypatch.setattr("simulator.cluster.cluster.ROUNDS", 30)
    monkeypatch.setattr(world.cluster._loop, "run", contrary)
    with pytest.raises(FallowError, match=r"does not come to rest.*team-a/d"):
        world.settle()


def test_two_thousand_pods_come_to_rest_in_seconds(small: Make, shapes: Any) -> None:
    world = small({"h100": 200})
    for part in range(20):
        world.make("Deployment", f"d{part}", shapes.deployment(100, app=f"d{part}"))
    began = time.process_time()
    world.settle()
    took = time.process_time() - began
    assert world.held() == 1600
    assert took < 10, f"{took:.1f} s of CPU"


def test_the_kubelet_says_what_it_gave_and_follows_a_resize(small: Make, shapes: Any) -> None:
    world = small({"h100": 1})
    spec = shapes.deployment(1)
    wanted = {"cpu": "8", "memory": "64Gi", "nvidia.com/gpu": "1"}
    spec["template"]["spec"]["containers"][0]["resources"] = {
        "requests": wanted, "limits": {"nvidia.com/gpu": "1"},
    }  # fmt: skip
    world.make("Deployment", "d", spec)
    world.run(600)
    (pod,) = world.pods()
    name = pod["spec"]["containers"][0]["name"]
    (status,) = pod["status"]["containerStatuses"]
    assert status["resources"]["requests"] == wanted
    lower = {"containers": [{"name": name, "resources": {"requests": {"cpu": "2"}}}]}
    where = {"subresource": "resize", "how": "strategic"}
    world.patch("Pod", pod["metadata"]["name"], {"spec": lower}, **where)
    world.run(1)
    (status,) = world.pods()[0]["status"]["containerStatuses"]
    assert status["resources"]["requests"] == {**wanted, "cpu": "2"}
    assert (status["restartCount"], status["ready"]) == (0, True)
    world.cluster.hold_resizes()
    lower["containers"][0]["resources"] = {"requests": {"cpu": "1"}}
    world.patch("Pod", pod["metadata"]["name"], {"spec": lower}, **where)
    world.run(1)
    (status,) = world.pods()[0]["status"]["containerStatuses"]
    assert status["resources"]["requests"] == {**wanted, "cpu": "2"}


@pytest.mark.parametrize(
    ("reason", "said", "code"), [("OOMKilled", "OOMKilled", 137), ("", "Error", 1)]
)
def test_a_container_that_was_killed_says_why_when_it_runs_again(
    small: Make, shapes: Any, reason: str, said: str, code: int
) -> None:
    world = small({"h100": 1})
    world.make("Deployment", "d", shapes.deployment(1))
    world.run(600)
    world.cluster.finish(world.pods()[0]["metadata"]["uid"], world.now_s, ok=False, reason=reason)
    world.run(600)
    (status,) = world.pods()[0]["status"]["containerStatuses"]
    assert status["ready"]
    last = status["lastState"]["terminated"]
    assert (last["reason"], last["exitCode"]) == (said, code)
