"""Resizes in place: verified by what kubelets say, given back where they cannot, and never half."""

from collections.abc import Callable
from typing import Any

import pytest

from actions.journal import ActionState
from actions.loop.actor import Actor
from tests.actions.loop import resizing
from tests.actions.loop.resizing import apply, memory, tell
from tests.actions.loop.site import Site, bare
from tests.actions.loop.test_crashes import STEPS_FROM_SENDING_ON, killed, nothing_twice

BEFORE, AFTER = ("1Gi", "1Gi"), ("512Mi", "512Mi")


def begun(site: Site) -> tuple[Actor, ActionState]:
    """Send the resize of both pods; what kubelets do about it is the test's to say."""
    site.cluster.hold_resizes()
    site.deployment()
    apply(site)
    actor = resizing.actor(site)
    site.told_and_waited(actor)
    report = actor.turn(dry_run=False)
    (result,) = actor.record.actions.values()
    assert [t.result for t in report.steps] == ["acted"], report.steps
    site.evidence.idle = []
    assert memory(site) == [AFTER, AFTER]
    return actor, result


def results(told: ActionState) -> list[str]:
    return [outcome.result for outcome in told.outcomes]


def test_a_resize_is_done_once_the_kubelets_have_applied_it_and_undone_exactly(
    site: Site,
) -> None:
    actor, result = begun(site)
    for _ in range(2):
        site.pass_time(minutes=3)
        actor.turn(dry_run=False)
        assert result.is_open, "the spec alone proves nothing"
    apply(site)
    actor.turn(dry_run=False)
    assert results(result) == ["done"]
    actor.undo(result.action.id, "ann")
    assert memory(site) == [BEFORE, BEFORE]
    nothing_twice(site)


def test_whole_amounts_are_nobodys_revert(site: Site) -> None:
    """The server writes quantities anew: 1024Mi comes back as 1Gi."""
    actor, result = begun(site)
    for pod in site.pods():
        amounts = {"memory": str(512 * resizing.MIB)}
        both = {"requests": amounts, "limits": amounts}
        tell(site, pod, resources=both)
    site.pass_time(minutes=3)
    actor.turn(dry_run=False)
    assert results(result) == ["done"]


def test_a_resize_that_a_kubelet_cannot_do_is_given_back_at_once(site: Site) -> None:
    actor, result = begun(site)
    answer = {"type": "PodResizePending", "reason": "Infeasible", "message": "static CPU policy"}
    tell(site, site.pods()[0], condition=answer)
    actor.turn(dry_run=False)
    assert results(result) == ["failed"]
    text = result.outcomes[-1].reasons[0].text
    assert "PodResizePending Infeasible: static CPU policy" in text
    assert memory(site) == [BEFORE, BEFORE]
    nothing_twice(site)


@pytest.mark.parametrize(
    "condition",
    [
        {"type": "PodResizePending", "reason": "Deferred", "message": "not enough memory"},
        {"type": "PodResizeInProgress"},
        {"type": "PodResizeInProgress", "reason": "Error", "message": "memory limit too low"},
    ],
    ids=["deferred", "in progress", "error"],
)
def test_a_resize_that_waits_is_given_back_when_its_time_is_over(
    site: Site, condition: dict[str, Any]
) -> None:
    actor, result = begun(site)
    apply(site)
    tell(site, site.pods()[0], condition=condition)
    site.pass_time(minutes=9)
    actor.turn(dry_run=False)
    assert result.is_open
    site.pass_time(minutes=2)
    actor.turn(dry_run=False)
    assert results(result) == ["failed"]
    assert condition["type"] in result.outcomes[-1].reasons[0].text
    assert memory(site) == [BEFORE, BEFORE]


def test_a_condition_that_is_over_holds_up_nothing(site: Site) -> None:
    actor, result = begun(site)
    apply(site)
    answer = {"type": "PodResizeInProgress", "status": "False"}
    tell(site, site.pods()[0], condition=answer)
    site.pass_time(minutes=3)
    actor.turn(dry_run=False)
    assert results(result) == ["done"]


def test_who_changes_the_request_meanwhile_wins(site: Site) -> None:
    actor, result = begun(site)
    pod = site.pods()[0]
    amounts = {"cpu": "1", "memory": "768Mi", "nvidia.com/gpu": "1"}
    container = {
        **pod["spec"]["containers"][0],
        "resources": {"requests": amounts, "limits": amounts},
    }
    site.store.patch(
        "Pod",
        pod["metadata"]["name"],
        "team-a",
        {"spec": {"containers": [container]}},
        subresource="resize",
        manager="kubectl-edit",
    )
    apply(site)
    site.pass_time(minutes=3)
    actor.turn(dry_run=False)
    assert results(result) == ["reverted"]
    assert sorted(memory(site)) == [BEFORE, ("768Mi", "768Mi")]


@pytest.mark.slow
@pytest.mark.parametrize("steps", STEPS_FROM_SENDING_ON)
def test_killed_at_a_step_of_a_resize(another_site: Callable[[], Site], steps: range) -> None:
    for step in steps:
        site = another_site()
        site.deployment()
        apply(site)
        before = {p["metadata"]["name"]: bare(p) for p in site.pods()}
        site.told_and_waited(resizing.actor(site))
        arguments = (site.server.url, site.folder, site.now, site.evidence.idle, step)
        alive = not killed(resizing.turn, *arguments)
        actor = resizing.actor(site)
        for _ in range(12):
            apply(site)
            site.pass_time(minutes=2)
            actor.turn(dry_run=False)
            if not actor.record.list_open() and memory(site) == [AFTER, AFTER]:
                break
        assert memory(site) == [AFTER, AFTER]
        nothing_twice(site)
        (done,) = [
            t for t in actor.record.actions.values() if t.outcome and t.outcome.result == "done"
        ]
        actor.undo(done.action.id, "ann")
        apply(site)
        assert {p["metadata"]["name"]: bare(p) for p in site.pods()} == before
        site.close()
        if alive:
            assert step > 10
            return
    raise AssertionError("the resize has no end")
