"""Who yields to whom: once, not in vain twice, and nobody takes the place meanwhile."""

from collections.abc import Callable
from typing import Any

Make = Callable[..., Any]


def bring(
    world: Any, shapes: Any, name: str, pods: int, gpus: int, *, priority: int, **note: str
) -> None:
    spec = shapes.deployment(pods, gpus, app=name)
    spec["template"]["spec"]["priority"] = priority
    spec["template"]["metadata"]["annotations"] = note
    world.make("Deployment", name, spec)


def ready(world: Any, name: str) -> int:
    count: int = world.get("Deployment", name)["status"]["readyReplicas"]
    return count


def test_a_vacated_place_waits_for_the_one_it_was_vacated_for(small: Make, shapes: Any) -> None:
    world = small({"h100": 1})
    bring(world, shapes, "quick", 4, 1, priority=0, **{"simulator.fallow/stop-seconds": "5"})
    bring(world, shapes, "slow", 4, 1, priority=0)
    world.run(600)
    bring(world, shapes, "high", 1, 8, priority=100)
    world.run(600)
    assert len(world.events("Preempted")) == 8, "nobody is evicted who came in their place"
    assert (ready(world, "high"), ready(world, "quick"), ready(world, "slow")) == (1, 0, 0)


def test_what_was_vain_is_tried_again_once_an_equal_has_gone(small: Make, shapes: Any) -> None:
    world = small({"h100": 1})
    bring(world, shapes, "low", 1, 1, priority=0)
    bring(world, shapes, "equal", 1, 7, priority=100)
    world.run(600)
    bring(world, shapes, "high", 1, 8, priority=100)
    world.run(600)
    assert (ready(world, "high"), world.events("Preempted")) == (0, [])
    world.patch("Deployment", "equal", {"spec": {"replicas": 0}}, subresource="scale")
    world.run(600)
    assert (ready(world, "high"), ready(world, "low")) == (1, 0)


def test_equals_do_not_yield(small: Make, shapes: Any) -> None:
    world = small({"h100": 1})
    bring(world, shapes, "first", 8, 1, priority=50)
    world.run(600)
    bring(world, shapes, "second", 1, 1, priority=50)
    world.run(3600)
    assert (ready(world, "first"), ready(world, "second")) == (8, 0)


def test_a_pod_group_is_placed_whole_or_not_at_all(small: Make, shapes: Any) -> None:
    world = small({"h100": 1})
    group = {"spec": {"minMember": 3}}
    world.make("PodGroup.scheduling.volcano.sh", "g", group["spec"])
    spec = shapes.job(gpus=4, width=3)
    spec["template"]["metadata"]["annotations"] = {"scheduling.k8s.io/group-name": "g"}
    world.make("Job", "j", spec)
    world.run(600)
    assert world.held() == 0
    assert len(world.pods("Pending")) == 3
