"""`kill -9` at every step of an action and of its undo: nothing twice, nothing forgotten."""

import multiprocessing
import signal
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from actions.journal import event_types
from actions.loop.actor import Actor
from tests.actions.loop import crashing
from tests.actions.loop.site import Site, bare

FRESH = multiprocessing.get_context("forkserver")
# What a process imports before it acts: once for all of them.
FRESH.set_forkserver_preload(["tests.actions.loop.crashing", "kubernetes.client"])
MOST_STEPS = 60
FIRST_SENDING = 7
"""The step before the first write; those before it are the same code for every kind of action."""
# In every run a Deployment's action and its undo (below) are killed at each step. Other kinds of
# action take the same steps with other writes: a third of theirs is enough beside it.
EACH_STEP = pytest.param(range(MOST_STEPS), id="each step", marks=pytest.mark.long)
STEPS = [pytest.param(range(0, MOST_STEPS, 3), id="every third step"), EACH_STEP]
STEPS_FROM_SENDING_ON = [
    pytest.param(range(FIRST_SENDING, MOST_STEPS, 3), id="every third step from a write on"),
    EACH_STEP,
]


def killed(function: Callable[..., None], *arguments: Any) -> bool:
    """Run a function in a process of its own; tell whether it killed itself."""
    process = FRESH.Process(target=function, args=arguments)
    process.start()
    process.join(60)
    assert process.exitcode in (0, -signal.SIGKILL), process.exitcode
    return process.exitcode != 0


def quiet(site: Site, actor: Actor) -> None:
    """Let turns pass until nothing is open any more."""
    for _ in range(12):
        site.pass_time(minutes=2)
        actor.turn(dry_run=False)
        if not actor.record.list_open() and site.replicas_or_suspended():
            return
    raise AssertionError([t.action.id for t in actor.record.list_open()])


def nothing_twice(site: Site) -> None:
    """Hold the journal to its promises: each change of each action was sent once."""
    journal = site.journal()
    assert journal.verify() is None
    sent = Counter(
        (e.kind, e.key, e.document["change"])
        for e in journal.entries(event_types.SENDING, event_types.UNDO_SENDING)
    )
    gone = Counter(
        (
            event_types.UNDO_SENDING if e.document.get("undo") else event_types.SENDING,
            e.key,
            e.document["change"],
        )
        for e in journal.entries(event_types.WITHDRAWN)
    )
    gone += Counter(  # what was refused did not happen: the same command may send it again
        (
            event_types.UNDO_SENDING if e.kind == event_types.UNDO_SENT else event_types.SENDING,
            e.key,
            e.document["change"],
        )
        for e in journal.entries(event_types.SENT, event_types.UNDO_SENT)
        if e.document["code"] >= 300
    )
    assert all(count - gone[key] <= 1 for key, count in sent.items()), sent
    intents = {e.key for e in journal.entries(event_types.INTENT)}
    assert intents == {e.key for e in journal.entries(event_types.OUTCOME)}


LONG_CRON_JOB = pytest.param("CronJob", marks=pytest.mark.long)
"""A Deployment is killed at the same steps in every run."""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["Deployment", LONG_CRON_JOB])
def test_killed_at_every_step_of_an_action(another_site: Callable[[], Site], kind: str) -> None:
    for step in range(MOST_STEPS):
        site = another_site()
        before = site.subject(kind)
        site.told_and_waited(site.actor())
        arguments = (site.server.url, site.folder, site.now, site.evidence.idle, step)
        alive = not killed(crashing.turn, *arguments)
        actor = site.actor()
        quiet(site, actor)
        nothing_twice(site)
        done = [
            t for t in actor.record.actions.values() if t.outcome and t.outcome.result == "done"
        ]
        assert len(done) == 1, [t.outcome for t in actor.record.actions.values()]
        actor.undo(done[0].action.id, "ann")
        site.settle()
        assert {k: bare(site.get(*k)) for k in before} == before
        site.close()
        if alive:
            assert step > 10
            return
    raise AssertionError("the action has no end")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["Deployment", LONG_CRON_JOB])
def test_killed_at_every_step_of_an_undo(another_site: Callable[[], Site], kind: str) -> None:
    for step in range(MOST_STEPS):
        site = another_site()
        before = site.subject(kind)
        actor = site.actor()
        site.told_and_waited(actor)
        actor.turn(dry_run=False)
        quiet(site, actor)
        (result,) = actor.record.actions.values()
        site.evidence.idle = []
        arguments = (site.server.url, site.folder, site.now, result.action.id, step)
        alive = not killed(crashing.undo, *arguments)
        for _ in range(3):
            site.pass_time(minutes=2)
            actor.turn(dry_run=False)
        if result.outcome and result.outcome.result != "undone":
            actor.undo(result.action.id, "ann")  # it died before it had begun
        nothing_twice(site)
        assert {k: bare(site.get(*k)) for k in before} == before
        site.close()
        if alive:
            assert step > 3
            return
    raise AssertionError("the undo has no end")
