"""A restart in the loop: the stop, the wait for its pods, the start; killed at every step of it."""

from collections.abc import Callable
from datetime import timedelta

import pytest

from actions.journal import event_types
from actions.loop.actor import Actor
from fallow.errors import RefusedError
from tests.actions.loop import crashing
from tests.actions.loop.site import SPACE, Object, Site
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


def delete_pod(site: Site) -> None:
    """Delete its pod by hand: its controller starts another one at the same moment."""
    [pod] = site.pods()
    site.store.delete("Pod", pod["metadata"]["name"], SPACE)
    site.pass_time(minutes=1)


def keep(site: Site) -> None:
    site.patch("JobSet", "train", {"metadata": {"annotations": {"fallow.dev/protect": "true"}}})


def suspend(site: Site) -> None:
    site.patch("JobSet", "train", {"spec": {"suspend": True}})


def move(site: Site) -> None:
    site.evidence.awake_at_last = {"train"}


def fall_silent(site: Site) -> None:
    site.evidence.stale_at_last = ("the last reading of activity is 9m old",)


def end_hang(site: Site) -> None:
    site.evidence.busy_on_second_look = {"train"}


def set_clock_back(site: Site) -> None:
    site.evidence.age = -timedelta(minutes=10)


def count_by_hand(site: Site) -> None:
    site.patch("JobSet", "train", {"metadata": {"annotations": {COUNT: "some"}}})


@pytest.mark.parametrize(
    ("change", "result", "text"),
    [
        (delete_pod, "refused", "left to its controller"),
        (keep, "refused", "fallow.dev/protect"),
        (suspend, "refused", "already"),
        (move, "refused", "was seen at work"),
        (fall_silent, "held", "9m old"),
        (end_hang, "refused", "there is no case any more"),
        (set_clock_back, "held", "its age is unknown"),
        (count_by_hand, "refused", "no number"),
    ],
)
def test_what_speaks_against_a_restart_between_notice_and_act_holds_it(
    running: Site, change: Callable[[Site], None], result: str, text: str
) -> None:
    actor = running.actor()
    running.told_and_waited(actor)
    change(running)
    before = uids(running)
    report = actor.turn(dry_run=False)
    [step] = report.steps
    assert (step.result, text in " ".join(r.text for r in step.reasons)) == (result, True), step
    assert not actor.record.actions
    assert uids(running) == before
    assert restarts(running) in {None, "some"}


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
