"""Back-tests of a service's own turns: what they promise, and what the turns themselves forbid."""

from collections.abc import Iterator
from datetime import datetime, timedelta

import pytest

from actions.backtest.policy_replay import PolicyReplay, ReplayTurns, replay
from actions.policy.model import Approvals, Policy
from fallow.window import Window
from tests.actions.backtest.test_backtest import IDLE
from tests.actions.backtest.town import HOUR, HOURS, Town, moments, rests, rule
from tests.analyzers.conftest import START

pytestmark = pytest.mark.slow

WHOLE = Window(START, START + HOURS * HOUR)


@pytest.fixture
def town() -> Iterator[Town]:
    with Town() as one:
        yield one


def promised(town: Town, policy: Policy, turns: ReplayTurns) -> list[tuple[str, str, float]]:
    return [
        (p.subject[3], p.step, (p.at - START) / HOUR) for p in made(town, policy, turns).promises
    ]


def made(town: Town, policy: Policy, turns: ReplayTurns) -> PolicyReplay:
    when = moments()
    past = IDLE.replay(town.views, WHOLE, when)
    return replay(policy, past, town.views, WHOLE, when, turns)


def test_it_promises_the_notice_and_the_act_at_their_turns(town: Town) -> None:
    town.add("resting")
    town.settle()
    assert promised(town, rule(), ReplayTurns()) == [
        ("resting", "notify", 1),
        ("resting", "act", 4),
    ]


@pytest.mark.parametrize(("at_once", "hours"), [(1, [4, 5, 6]), (2, [4, 4, 5]), (3, [4, 4, 4])])
def test_so_many_acts_are_under_way_at_once(town: Town, at_once: int, hours: list[int]) -> None:
    for n in range(3):
        town.add(f"w{n}")
    town.settle()
    many = rule(concurrent=10)
    found = promised(town, many, ReplayTurns(concurrent=at_once))
    assert [hour for _, step, hour in found if step == "act"] == hours
    # The policy's own number counts as well.
    own = promised(town, rule(concurrent=at_once), ReplayTurns(concurrent=10))
    assert [hour for _, step, hour in own if step == "act"] == hours


def test_while_telemetry_is_not_to_be_trusted_nothing_is_promised(town: Town) -> None:
    town.add("resting")
    town.settle()

    def incident(at: datetime) -> str | None:
        return "exporters are down" if at in (START + HOUR, START + 5 * HOUR) else None

    # The notice waits for the next turn; three hours of grace are over at a turn without a cause.
    assert promised(town, rule(), ReplayTurns(incident=incident)) == [
        ("resting", "notify", 2),
        ("resting", "act", 6),
    ]


def test_gates_that_people_answer_are_named_and_never_met(town: Town) -> None:
    town.add("resting")
    town.settle()
    asks = rule(approvals=Approvals(when="always"))
    notify, act = made(town, asks, ReplayTurns()).promises
    assert notify.depends == ()
    assert "approval" in act.depends
    assert (notify.met, act.met) == (True, False)
    assert made(town, asks, ReplayTurns()).backtest.unknown == act.depends
    _, free = made(town, rule(), ReplayTurns()).promises
    assert "approval" not in free.depends
    assert "evidence" in free.depends


def test_a_policy_that_owners_reverse_too_often_promises_no_more(town: Town) -> None:
    for n in range(3):
        town.add(f"w{n}", rests((6, 8)))
    town.settle()
    hasty = rule(concurrent=10, cool_down=timedelta(0))
    gone_on = [hour for _, step, hour in promised(town, hasty, ReplayTurns()) if step == "act"]
    assert gone_on[:3] == [4, 4, 4]
    assert len(gone_on) > 3
    lived = [
        hour for _, step, hour in promised(town, hasty, ReplayTurns(lived=True)) if step == "act"
    ]
    assert lived == [4, 4, 4]
