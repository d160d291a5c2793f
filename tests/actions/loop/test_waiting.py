"""Writes that wait for what earlier ones bring about: MIG GPUs cut again, end to end."""

from collections.abc import Callable

import pytest

from actions.journal import ActionState, event_types
from actions.loop.actor import Actor
from fallow.errors import RefusedError
from tests.actions.loop import cutting
from tests.actions.loop.cutting import NEW, OLD, labels, managed, node, shown
from tests.actions.loop.site import SPACE, Site, bare
from tests.actions.loop.test_crashes import STEPS, STEPS_FROM_SENDING_ON, killed, nothing_twice


def begun(site: Site) -> tuple[Actor, str, ActionState]:
    """Cordon and label the node; the uncordon waits."""
    name, actor = node(site), cutting.actor(site)
    state = _acted(site, actor)
    site.evidence.idle = []
    return actor, name, state


def _acted(site: Site, actor: Actor) -> ActionState:
    site.told_and_waited(actor)
    report = actor.turn(dry_run=False)
    (result,) = actor.record.actions.values()
    assert [t.result for t in report.steps] == ["acted"], report.steps
    assert [r.gate for t in report.steps for r in t.reasons] == ["waiting"]
    return result


def results(told: ActionState) -> list[str]:
    return [outcome.result for outcome in told.outcomes]


def test_the_node_stays_cordoned_until_mig_manager_says_success(site: Site) -> None:
    actor, name, result = begun(site)
    assert shown(site, name) == (NEW, "pending", True)
    for _ in range(3):
        site.pass_time(minutes=2)
        actor.turn(dry_run=False)
        assert result.is_open
        assert shown(site, name)[2], "pods would be reset with the boards"
    assert [e.document["change"] for e in site.journal().entries(event_types.SENT)] == [0, 1]
    managed(site, name)
    actor.turn(dry_run=False)
    assert shown(site, name) == (NEW, "success", False)
    site.pass_time(minutes=3)
    actor.turn(dry_run=False)
    assert results(result) == ["done"], "an uncordon of our own is nobody's revert"
    assert not any(k == event_types.REVERSED for k in site.kinds())
    nothing_twice(site)


def test_a_word_of_the_time_before_lets_nobody_in(site: Site) -> None:
    _, name, _ = begun(site)
    assert shown(site, name)[1] != "success"


def test_boards_that_are_not_cut_in_time_are_given_back(site: Site) -> None:
    before = bare(site.store.get("Node", site.store.list("Node")[0]["metadata"]["name"]) or {})
    actor, name, result = begun(site)
    labels(site, name, **{cutting.STATE: "failed"})
    site.pass_time(minutes=31)
    actor.turn(dry_run=False)
    assert shown(site, name) == (OLD, "pending", True), "it is cut back first"
    assert result.is_open
    managed(site, name)
    actor.turn(dry_run=False)
    assert results(result) == ["failed"]
    assert "does not show" in result.outcomes[-1].reasons[0].text
    assert shown(site, name) == (OLD, "success", False)
    after = bare(site.store.get("Node", name) or {})
    for word in (cutting.LAYOUT, cutting.STATE):
        after["metadata"]["labels"].pop(word)
    assert after == before
    nothing_twice(site)


def test_somebody_who_lets_pods_in_meanwhile_is_not_fought(site: Site) -> None:
    actor, name, result = begun(site)
    site.store.patch("Node", name, "", {"spec": {"unschedulable": None}}, manager="ann")
    site.pass_time(minutes=1)
    actor.turn(dry_run=False)
    assert result.restored is not None, "who it was the fields do not tell: one was taken away"
    assert result.is_open, "cut back once the node is cordoned again"
    site.pass_time(minutes=31)
    actor.turn(dry_run=False)
    assert results(result) == ["reverted"]
    assert "unschedulable" in result.outcomes[-1].reasons[-1].text
    assert not shown(site, name)[2]
    assert shown(site, name)[0] == NEW, "boards are not cut back under pods"


def test_a_pod_that_came_before_the_cordon_keeps_its_board(site: Site) -> None:
    name = node(site)
    site.evidence.idle = [("Node", name)]

    def late(step: str) -> None:
        if step == "answered 0":
            limits = {"nvidia.com/gpu": "1"}
            main = {"name": "main", "image": "work:1", "resources": {"limits": limits}}
            site.make("Pod", "late", {"nodeName": name, "containers": [main]})

    actor = cutting.actor(site, pulse=late)
    state = _acted(site, actor)
    assert shown(site, name) == (OLD, "success", True)
    site.evidence.idle = []
    site.pass_time(minutes=11)
    actor.turn(dry_run=False)
    assert results(state) == ["failed"]
    assert shown(site, name) == (OLD, "success", False)
    assert site.get("Pod", "late", SPACE)["spec"]["nodeName"] == name


def test_an_undo_later_needs_a_node_that_somebody_cordoned(site: Site) -> None:
    actor, name, result = begun(site)
    managed(site, name)
    actor.turn(dry_run=False)
    site.pass_time(minutes=3)
    actor.turn(dry_run=False)
    with pytest.raises(RefusedError, match=r"cannot be undone now: .*unschedulable = True"):
        actor.undo(result.action.id, "ann")
    assert shown(site, name) == (NEW, "success", False)
    assert event_types.UNDO_STARTED not in site.kinds()


@pytest.mark.slow
@pytest.mark.parametrize("steps", STEPS_FROM_SENDING_ON)
def test_killed_at_a_step_of_the_cut(another_site: Callable[[], Site], steps: range) -> None:
    kill_at_steps(another_site, steps, second=False)


@pytest.mark.slow
@pytest.mark.parametrize("steps", STEPS)
def test_killed_at_a_step_of_the_end_of_the_wait(
    another_site: Callable[[], Site], steps: range
) -> None:
    kill_at_steps(another_site, steps, second=True)


def kill_at_steps(another_site: Callable[[], Site], steps: range, *, second: bool) -> None:
    """Kill a turn at each of these steps: the one that cuts, or the second one, which waited."""
    for step in steps:
        site = another_site()
        name = node(site)
        idle = list(site.evidence.idle)
        actor = cutting.actor(site)
        if second:
            _acted(site, actor)
            managed(site, name)
        else:
            site.told_and_waited(actor)
        alive = not killed(cutting.turn, site.server.url, site.folder, site.now, idle, step)
        after = cutting.actor(site)
        for _ in range(12):
            managed(site, name)
            site.pass_time(minutes=2)
            after.turn(dry_run=False)
        assert not after.record.list_open()
        nothing_twice(site)
        last = [*after.record.actions.values()][-1]
        assert last.outcome is not None
        cut = last.outcome.result == "done"
        assert shown(site, name) == ((NEW if cut else OLD), "success", False)
        site.close()
        if alive:
            assert step > 3
            return
    raise AssertionError("it has no end")
