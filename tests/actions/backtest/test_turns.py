"""Back-tests of a service's own turns: what they promise, and what the turns themselves forbid."""

from collections.abc import Iterator
from datetime import datetime, timedelta

import pytest

from actions.backtest.policy_replay import PolicyReplay, ReplayTurns, replay
from actions.policy.model import Approvals, Policy
from fallow.window import Window
from tests.actions.backtest.scenario import HOUR, HOURS, FleetScenario, moments, rests, rule
from tests.actions.backtest.test_backtest import IDLE
from tests.analyzers.conftest import START

pytestmark = pytest.mark.slow

WHOLE = Window(START, START + HOURS * HOUR)


@pytest.fixture
def scenario() -> Iterator[FleetScenario]:
    with FleetScenario() as one:
        yield one


def promised(
    scenario: FleetScenario, policy: Policy, turns: ReplayTurns
) -> list[tuple[str, str, float]]:
    return [
        (p.subject[3], p.step, (p.at - START) / HOUR)
        for p in made(scenario, policy, turns).promises
    ]


def made(scenario: FleetScenario, policy: Policy, turns: ReplayTurns) -> PolicyReplay:
    when = moments()
    past = IDLE.replay(scenario.views, WHOLE, when)
    return replay(policy, past, scenario.views, WHOLE, when, turns)


def test_it_promises_the_notice_and_the_act_at_their_turns(scenario: FleetScenario) -> None:
    scenario.add("resting")
    scenario.settle()
    assert promised(scenario, rule(), ReplayTurns()) == [
        ("resting", "notify", 1),
        ("resting", "act", 4),
    ]


@pytest.mark.parametrize(("at_once", "hours"), [(1, [4, 5, 6]), (2, [4, 4, 5]), (3, [4, 4, 4])])
def test_so_many_acts_are_under_way_at_once(
    scenario: FleetScenario, at_once: int, hours: list[int]
) -> None:
    for n in range(3):
        scenario.add(f"w{n}")
    scenario.settle()
    many = rule(concurrent=10)
    found = promised(scenario, many, ReplayTurns(concurrent=at_once))
    assert [hour for _, step, hour in found if step == "act"] == hours
    # The policy's own number counts as well.
    own = promised(scenario, rule(concurrent=at_once), ReplayTurns(concurrent=10))
    assert [hour for _, step, hour in own if step == "act"] == hours


def test_while_telemetry_is_not_to_be_trusted_nothing_is_promised(scenario: FleetScenario) -> None:
    scenario.add("resting")
    scenario.settle()

    def incident(at: datetime) -> str | None:
        return "exporters are down" if at in (START + HOUR, START + 5 * HOUR) else None

    # The notice waits for the next turn; three hours of grace are over at a turn without a cause.
    assert promised(scenario, rule(), ReplayTurns(incident=incident)) == [
        ("resting", "notify", 2),
        ("resting", "act", 6),
    ]


def test_gates_that_people_answer_are_named_and_never_met(scenario: FleetScenario) -> None:
    scenario.add("resting")
    scenario.settle()
    asks = rule(approvals=Approvals(when="always"))
    notify, act = made(scenario, asks, ReplayTurns()).promises
    assert notify.depends == ()
    assert "approval" in act.depends
    assert (notify.met, act.met) == (True, False)
    assert made(scenario, asks, ReplayTurns()).backtest.unknown == act.depends
    _, free = made(scenario, rule(), ReplayTurns()).promises
    assert "approval" not in free.depends
    assert "evidence" in free.depends


def test_a_policy_that_owners_reverse_too_often_promises_no_more(scenario: FleetScenario) -> None:
    for n in range(3):
        scenario.add(f"w{n}", rests((6, 8)))
    scenario.settle()
    hasty = rule(concurrent=10, cool_down=timedelta(0))
    gone_on = [hour for _, step, hour in promised(scenario, hasty, ReplayTurns()) if step == "act"]
    assert gone_on[:3] == [4, 4, 4]
    assert len(gone_on) > 3
    lived = [
        hour
        for _, step, hour in promised(scenario, hasty, ReplayTurns(lived=True))
        if step == "act"
    ]
    assert lived == [4, 4, 4]
