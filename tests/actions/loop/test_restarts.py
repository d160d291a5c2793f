"""A restart in the loop: the stop, the wait for its pods, the start; killed at every step of it."""

from collections.abc import Callable

import pytest

from actions.journal import event_types
from actions.loop.actor import Actor
from fallow.errors import RefusedError
from tests.actions.loop import crashing
from tests.actions.loop.site import Object, Site
from tests.actions.loop.test_crashes import MOST_STEPS, STEPS, killed, nothing_twice

COUNT = "fallow.dev/restarts"


def uids(site: Site) -> set[str]:
    return {pod["metadata"]["uid"] for pod in site.pods()}


def restarts(site: Site) -> str | None:
    notes = site.get("JobSet", "train")["metadata"].get("annotations") or {}
    return notes.get(COUNT)


def job_set(site: Site) -> Object:
    return site.get("JobSet", "train")


def settle(site: Site, actor: Actor) -> None:
    """Let turns pass until the action is over."""
    for _ in range(6):
        site.pass_time(minutes=2)
        actor.turn(dry_run=False)
        if not actor.record.list_open():
            return
    raise AssertionError([t.action.id for t in actor.record.list_open()])


@pytest.fixture
def running(site: Site) -> Site:
    site.job_set()
    assert len(uids(site)) == 1
    return site


def test_a_job_is_restarted_with_new_pods_and_cannot_be_undone(running: Site) -> None:
    site, before = running, uids(running)
    actor = site.actor()
    told = site.acted(actor)
    assert job_set(site)["spec"]["suspend"] is True
    settle(site, actor)
    assert told.outcome is not None
    assert told.outcome.result == "done", told.outcome
    assert job_set(site)["spec"]["suspend"] is False
    assert len(uids(site)) == 1
    assert not uids(site) & before
    assert restarts(site) == "1"
    with pytest.raises(RefusedError, match="cannot be undone"):
        actor.undo(told.action.id, "ann")
    assert job_set(site)["spec"]["suspend"] is False


def test_a_second_restart_of_the_same_job_is_refused(running: Site) -> None:
    actor = running.actor()
    running.acted(actor)
    settle(running, actor)
    before = uids(running)
    running.pass_time(hours=2)
    report = actor.turn(dry_run=False)
    [step] = [s for s in report.steps if s.reasons]
    assert step.result == "refused"
    assert "was restarted 1 times, max_restarts is 1" in step.reasons[0].text
    assert uids(running) == before


def test_while_its_pods_end_an_undo_resumes_it(running: Site) -> None:
    actor = running.actor()
    told = running.acted(actor)
    assert job_set(running)["spec"]["suspend"] is True
    assert actor.undo(told.action.id, "ann").result == "undone"
    assert job_set(running)["spec"]["suspend"] is False
    running.pass_time(minutes=5)
    assert len(uids(running)) == 1


def test_a_dry_run_sends_nothing(running: Site) -> None:
    actor, before = running.actor(), uids(running)
    running.told_and_waited(actor)
    report = actor.turn(dry_run=True)
    assert [s.result for s in report.steps] == ["would act"]
    assert (uids(running), restarts(running)) == (before, None)


def test_its_owner_who_resumes_it_by_hand_is_not_overruled(running: Site) -> None:
    actor = running.actor()
    told = running.acted(actor)
    running.patch("JobSet", "train", {"spec": {"suspend": False}}, manager="kubectl-edit")
    settle(running, actor)
    assert told.outcome is not None
    assert told.outcome.result == "reverted"
    assert job_set(running)["spec"]["suspend"] is False


@pytest.mark.slow
@pytest.mark.parametrize("steps", STEPS)
def test_killed_at_every_step_of_a_restart_it_is_restarted_once(
    another_site: Callable[[], Site], steps: range
) -> None:
    for step in steps:
        site = another_site()
        site.job_set()
        before = uids(site)
        site.told_and_waited(site.actor())
        arguments = (site.server.url, site.folder, site.now, site.evidence.idle, step)
        alive = not killed(crashing.turn, *arguments)
        actor = site.actor()
        for _ in range(8):
            site.pass_time(minutes=2)
            actor.turn(dry_run=False)
        nothing_twice(site)
        assert not actor.record.list_open()
        assert job_set(site)["spec"]["suspend"] is False
        assert len(uids(site)) == 1
        assert not uids(site) & before
        assert restarts(site) == "1"
        assert len(list(site.journal().entries(event_types.INTENT))) <= 2
        site.close()
        if alive:
            assert step > 10
            return
    raise AssertionError(f"the action has no end within {MOST_STEPS} steps")
