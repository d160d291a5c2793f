"""`kill -9` at the steps of a drain and of its undo: no pod evicted twice, no node left shut."""

from collections.abc import Callable
from typing import Any

import pytest

from actions.loop.actor import Actor
from tests.actions.loop import crashing, draining
from tests.actions.loop.draining import OTHER, SICK
from tests.actions.loop.site import Site, bare
from tests.actions.loop.test_crashes import (
    STEPS,
    STEPS_FROM_SENDING_ON,
    killed,
    nothing_twice,
)


def finished(site: Site, actor: Actor) -> Any:
    """Let turns pass until a drain of the node is done; return it."""
    for _ in range(12):
        site.pass_time(minutes=2)
        actor.turn(dry_run=False)
        ended = [t for t in actor.record.actions.values() if t.outcome and not t.is_open]
        for result in ended:
            if result.outcome is not None and result.outcome.result == "done":
                return result
    raise AssertionError([t.outcome for t in actor.record.actions.values()])


def each_eviction_once(site: Site) -> None:
    sent = site.writes("/eviction")
    assert len(sent) == len(set(sent)) == 2, sent


@pytest.mark.slow
@pytest.mark.parametrize(
    "budget",
    [
        pytest.param(False, id="free"),
        # The budget alone: test_drain_faults.py, in every run.
        pytest.param(True, id="under a budget", marks=pytest.mark.long),
    ],
)
@pytest.mark.parametrize("steps", STEPS_FROM_SENDING_ON)
def test_killed_at_a_step_of_a_drain(
    another_site: Callable[[], Site], budget: bool, steps: range
) -> None:
    for step in steps:
        site = another_site()
        before = draining.loaded(site)
        if budget:
            draining.budget(site, minAvailable=1)
        site.told_and_waited(draining.actor(site))
        alive = not killed(
            draining.turn, site.server.url, site.folder, site.now, site.evidence.idle, step
        )
        actor = draining.actor(site)
        state = finished(site, actor)
        nothing_twice(site)
        if not budget:
            each_eviction_once(site)
        assert draining.on(site, SICK) == []
        assert len(draining.on(site, OTHER)) == 2
        actor.undo(state.action.id, "ann")
        site.settle()
        assert bare(site.get("Node", SICK, "")) == before
        site.close()
        if alive:
            assert step > 10
            return
    raise AssertionError("the drain has no end")


@pytest.mark.slow
@pytest.mark.parametrize("steps", STEPS)
def test_killed_at_a_step_of_the_undo_of_a_drain(
    another_site: Callable[[], Site], steps: range
) -> None:
    for step in steps:
        site = another_site()
        before = draining.loaded(site)
        actor = draining.actor(site)
        state = site.done(actor)
        site.evidence.idle = []
        arguments = (site.server.url, site.folder, site.now, state.action.id, step)
        alive = not killed(crashing.undo, *arguments)
        for _ in range(3):
            site.pass_time(minutes=2)
            actor.turn(dry_run=False)
        if state.outcome and state.outcome.result != "undone":
            actor.undo(state.action.id, "ann")  # it died before it had begun
        nothing_twice(site)
        site.settle()
        assert bare(site.get("Node", SICK, "")) == before
        site.close()
        if alive:
            assert step > 3
            return
    raise AssertionError("the undo has no end")
