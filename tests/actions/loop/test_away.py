"""The API server is away for ten minutes in the middle of acting: all of it ends, nothing twice."""

from collections.abc import Callable
from contextlib import suppress

import pytest

from actions.journal import ActionState
from actions.loop.actor import Actor
from fallow.errors import FallowError, TemporaryError
from tests.actions.loop import draining
from tests.actions.loop.draining import SICK
from tests.actions.loop.site import Site, bare
from tests.actions.loop.test_crashes import STEPS, STEPS_FROM_SENDING_ON, nothing_twice

MAKERS: dict[str, Callable[..., Actor]] = {
    "Deployment": lambda site, **more: site.actor(**more),
    "drain": draining.actor,
}


class Outage:
    """Takes the API server away at one step of an actor, and brings it back."""

    def __init__(self, site: Site, step: int) -> None:
        self.site, self.left, self.steps = site, step, 0

    def __call__(self, _step: str) -> None:
        self.steps += 1
        self.left -= 1
        if self.left == -1:
            self.site.server.faults.away = True

    @property
    def came(self) -> bool:
        return self.left < 0


def subject(site: Site, kind: str) -> Callable[[], object]:
    """Make what is acted upon; return how it stands, bare."""
    if kind == "drain":
        draining.loaded(site)
        return lambda: bare(site.get("Node", SICK, ""))
    site.deployment()
    return lambda: bare(site.get("Deployment", "web"))


def outlast(site: Site, actor: Actor) -> None:
    """Let ten minutes pass in which nothing answers; each turn says so in one line."""
    for _ in range(5):
        site.pass_time(minutes=2)
        with pytest.raises(TemporaryError) as error:
            actor.turn(dry_run=False)
        assert "\n" not in error.value.message
    site.server.faults.away = False


def done(site: Site, actor: Actor) -> ActionState:
    """Let turns pass until the action is done."""
    for _ in range(8):
        site.pass_time(minutes=2)
        actor.turn(dry_run=False)
        for result in actor.record.actions.values():
            if result.outcome is not None and result.outcome.result == "done":
                return result
    raise AssertionError([t.outcome for t in actor.record.actions.values()])


@pytest.mark.slow
@pytest.mark.parametrize("steps", STEPS)
def test_away_at_a_step_of_an_action(another_site: Callable[[], Site], steps: range) -> None:
    away_at_steps(another_site, "Deployment", steps)


@pytest.mark.slow
@pytest.mark.parametrize("steps", STEPS_FROM_SENDING_ON)
def test_away_at_a_step_of_a_drain(another_site: Callable[[], Site], steps: range) -> None:
    away_at_steps(another_site, "drain", steps)


def away_at_steps(another_site: Callable[[], Site], kind: str, steps: range) -> None:
    """Take the API server away at each of these steps of an action, and bring it back."""
    make = MAKERS[kind]
    for step in steps:
        site = another_site()
        shown = subject(site, kind)
        before = shown()
        site.told_and_waited(make(site))
        outage = Outage(site, step)
        with suppress(TemporaryError):
            make(site, pulse=outage).turn(dry_run=False)
        if outage.came:
            outlast(site, make(site))
        actor = make(site)
        state = done(site, actor)
        nothing_twice(site)
        actor.undo(state.action.id, "ann")
        site.settle()
        assert shown() == before
        site.close()
        if not outage.came:
            assert step > 10
            return
    raise AssertionError("the action has no end")


@pytest.mark.slow
# A Deployment: an undo goes through the same code for every kind of action.
@pytest.mark.parametrize("kind", ["Deployment", pytest.param("drain", marks=pytest.mark.long)])
@pytest.mark.parametrize("steps", STEPS)
def test_away_at_a_step_of_an_undo(
    another_site: Callable[[], Site], kind: str, steps: range
) -> None:
    make = MAKERS[kind]
    for step in steps:
        site = another_site()
        shown = subject(site, kind)
        before = shown()
        state = site.done(make(site))
        site.evidence.idle = []
        outage = Outage(site, step)
        actor = make(site, pulse=outage)
        with suppress(TemporaryError):
            actor.undo(state.action.id, "ann")
        if outage.came:
            outlast(site, actor)
        site.pass_time(minutes=2)
        actor = make(site)
        (now,) = actor.record.catch_up().actions.values()
        if now.outcome is None or now.outcome.result != "undone":
            # The same command again is all that somebody has to know.
            actor.undo(state.action.id, "ann")
        site.settle()
        assert shown() == before
        nothing_twice(site)
        assert not now.is_open
        assert now.outcome is not None
        assert now.outcome.result == "undone"
        site.close()
        if not outage.came:
            assert step > 3
            return
    raise AssertionError("the undo has no end")


def test_an_undo_while_nothing_answers_is_one_line_and_nothing_is_journalled(site: Site) -> None:
    site.deployment()
    actor = site.actor()
    state = site.done(actor)
    rows = len(site.kinds())
    site.server.faults.away = True
    with pytest.raises(FallowError) as error:
        actor.undo(state.action.id, "ann")
    assert isinstance(error.value, TemporaryError)
    assert len(site.kinds()) == rows
    site.server.faults.away = False
    actor.undo(state.action.id, "ann")
    assert site.replicas() == 2
