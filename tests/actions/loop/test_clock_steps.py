"""The actor on a machine whose clock is set by an hour, and beside hosts whose clocks differ."""

from datetime import timedelta

import pytest

from actions.cluster.write_results import WriteResult
from actions.loop.actor import Actor
from fallow.system.clock_steps import ClockSteps
from tests.actions.loop.site import Site

HOUR = timedelta(hours=1)


class SetClock:
    """The clock of the machine: what the site lives by, and what it shows."""

    def __init__(self, site: Site) -> None:
        self._site, self.offset = site, timedelta(0)
        self.steps = ClockSteps(lambda: self._site.now.timestamp())  # noqa: PLW0108  (`now` moves)
        self.now = self.steps.watch(lambda: site.now + self.offset)

    def actor(self) -> Actor:
        """Return an actor and a journal that both live by this clock."""
        actor = self._site.actor(clock=self.now)
        actor.record.journal._clock = self.now
        actor.record.steps = self.steps
        return actor

    def step(self, length: timedelta) -> None:
        self.offset += length
        self.now()


@pytest.fixture
def clock(site: Site) -> SetClock:
    made = SetClock(site)
    site.evidence.clock = made.now
    return made


def notify(site: Site, actor: Actor) -> None:
    actor.turn(dry_run=False)
    site.pass_time(minutes=1)
    actor.turn(dry_run=False)
    assert site.told.notices


def turn_results(actor: Actor) -> list[str]:
    return [step.result for step in actor.turn(dry_run=False).steps]


def test_a_clock_set_forward_ends_no_grace_period(site: Site, clock: SetClock) -> None:
    site.deployment()
    actor = clock.actor()
    notify(site, actor)
    site.pass_time(minutes=10)
    clock.step(HOUR)
    assert turn_results(actor) == []
    assert site.replicas() == 2
    site.pass_time(minutes=45)
    assert turn_results(actor) == []
    site.pass_time(minutes=6)
    assert turn_results(actor) == ["acted"]


def test_a_clock_set_back_only_lengthens_a_grace_period(site: Site, clock: SetClock) -> None:
    site.deployment()
    actor = clock.actor()
    notify(site, actor)
    site.pass_time(minutes=59)
    clock.step(-HOUR)
    site.pass_time(minutes=2)
    assert turn_results(actor) == []
    site.pass_time(hours=1)
    assert turn_results(actor) == ["acted"]


def test_samples_from_before_a_step_back_are_no_fresh_evidence(site: Site, clock: SetClock) -> None:
    """The last sample is an hour ahead of the clock: nobody knows how old it is."""
    site.deployment()
    actor = clock.actor()
    notify(site, actor)
    site.pass_time(hours=1, minutes=1)
    site.evidence.age = -HOUR
    (step,) = actor.turn(dry_run=False).steps
    assert step.result == "held"
    assert "3600 s ahead of this clock" in step.reasons[0].text
    assert site.replicas() == 2


@pytest.mark.parametrize(
    ("skew", "result"),
    [
        (timedelta(minutes=10), "held"),  # the exporters' host is ten minutes ahead
        (timedelta(minutes=-10), "held"),  # behind: its samples look old
        (timedelta(seconds=30), "acted"),
        (timedelta(seconds=-20), "acted"),
    ],
)
def test_a_host_whose_clock_differs_by_ten_minutes_gives_no_fresh_evidence(
    site: Site, clock: SetClock, skew: timedelta, result: str
) -> None:
    site.deployment()
    actor = clock.actor()
    notify(site, actor)
    site.pass_time(hours=1, minutes=1)
    site.evidence.age = timedelta(seconds=20) - skew
    assert turn_results(actor) == [result]


@pytest.mark.parametrize("step", [HOUR, -HOUR], ids=["forward", "back"])
def test_a_write_without_an_answer_is_not_called_lost_by_a_step(
    site: Site, clock: SetClock, step: timedelta
) -> None:
    """A write may arrive for 90 seconds; by the clock that was set they would be over at once."""
    site.deployment()
    actor = clock.actor()
    notify(site, actor)
    site.pass_time(hours=1, minutes=1)
    send = actor.context.sender._send_once

    def away(_change: object) -> object:
        return WriteResult("away", 0, reason="no answer")

    actor.context.sender._send_once = away  # type: ignore[method-assign,assignment]
    actor.turn(dry_run=False)
    actor.context.sender._send_once = send  # type: ignore[method-assign]
    (state,) = actor.record.actions.values()
    assert state.writes.open
    clock.step(step)
    site.pass_time(seconds=30)
    actor.turn(dry_run=False)
    assert state.writes.open, "it may still arrive"
    assert site.replicas() == 2
