"""Back-tests of a service with all its policies: who goes first, and what no history tells."""

from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal

import pytest
from msgspec.structs import replace

from actions.backtest.service_replay import (
    ACT_TIME_GATES,
    PromisedStep,
    ReplayAnswers,
    ServiceTurns,
)
from actions.backtest.service_replay import replay as replay_service
from actions.policy.model import Approvals, Match, Policy, PolicyAmount
from fallow.action_models import Decision
from fallow.settings.actions import ActionsSettings
from fallow.window import Window
from tests.actions.backtest.scenario import HOUR, HOURS, FleetScenario, moments, rests, rule
from tests.actions.backtest.test_backtest import IDLE
from tests.analyzers.conftest import START

pytestmark = pytest.mark.slow

WHOLE = Window(START, START + HOURS * HOUR)
Shown = list[tuple[str, str, str, float]]


def known(_decision: Decision) -> tuple[str, ...]:
    return ()


@pytest.fixture
def scenario() -> Iterator[FleetScenario]:
    with FleetScenario() as one:
        yield one


def made(
    scenario: FleetScenario,
    *policies: Policy,
    answers: ReplayAnswers | None = None,
    concurrent: int = 10,
    incident: tuple[datetime, ...] = (),
) -> tuple[PromisedStep, ...]:
    times = moments()
    turns = ServiceTurns(
        times,
        ActionsSettings(concurrent=concurrent),
        lambda at: "exporters are down" if at in incident else None,
        answers=answers or ReplayAnswers(shut=known),
    )
    found = {"idle": IDLE.replay(scenario.views, WHOLE, times)}
    enforced = [replace(policy, mode="enforce") for policy in policies]
    return replay_service(enforced, found, scenario.views, WHOLE, turns).promises


def shown(promises: tuple[PromisedStep, ...]) -> Shown:
    return [(p.policy, p.subject[3], p.step, (p.at - START) / HOUR) for p in promises]


def test_one_policy_alone_promises_its_notice_and_its_act_at_their_turns(
    scenario: FleetScenario,
) -> None:
    scenario.add("resting")
    scenario.settle()
    assert shown(made(scenario, rule())) == [
        ("rest", "resting", "notify", 1),
        ("rest", "resting", "act", 4),
    ]


def test_of_several_policies_the_one_that_goes_furthest_decides_about_an_object(
    scenario: FleetScenario,
) -> None:
    scenario.add("resting")
    scenario.settle()
    slow = rule(name="slow", stages=(*rule().stages[:2], *rule().stages[3:]))
    # `slow` has no grace: at first sight both notify, the first of them; an hour later `slow`
    # has not been heard yet, and its notice goes before the other's grace; then it acts.
    assert shown(made(scenario, rule(), slow)) == [
        ("rest", "resting", "notify", 1),
        ("slow", "resting", "notify", 2),
        ("slow", "resting", "act", 3),
    ]


def test_too_many_cases_of_one_policy_end_the_turn_of_all(scenario: FleetScenario) -> None:
    for n in range(3):
        scenario.add(f"w{n}")
    scenario.add("nb", kind="Notebook")
    scenario.settle()
    of_jobs = Match(analyzer=("idle",), kind=("idle_job",))
    of_notebooks = Match(analyzer=("idle",), kind=("idle_notebook",))
    few = rule(name="few", match=of_jobs, max_resources=PolicyAmount(Decimal(2)))
    many = rule(name="many", match=of_notebooks, max_resources=PolicyAmount(Decimal(2)))
    assert ("many", "nb", "act", 4) in shown(made(scenario, many))
    assert [s for s in shown(made(scenario, few, many)) if s[2] == "act"] == []


def test_so_many_acts_of_all_policies_are_under_way_at_once(scenario: FleetScenario) -> None:
    for n in range(3):
        scenario.add(f"w{n}")
    scenario.settle()
    found = shown(made(scenario, rule(concurrent=10), concurrent=2))
    assert [hour for *_, step, hour in found if step == "act"] == [4, 4, 5]


def test_while_telemetry_is_not_to_be_trusted_nothing_is_promised(scenario: FleetScenario) -> None:
    scenario.add("resting")
    scenario.settle()
    found = shown(made(scenario, rule(), incident=(START + HOUR, START + 5 * HOUR)))
    assert [(step, hour) for *_, step, hour in found] == [("notify", 2), ("act", 6)]


def test_an_approval_that_nobody_knows_of_is_named_and_does_not_count_as_met(
    scenario: FleetScenario,
) -> None:
    scenario.add("resting")
    scenario.settle()
    asks = rule(approvals=Approvals(when="always"))
    notify, act = made(scenario, asks)
    assert (notify.depends, notify.met) == ((), True)
    assert (act.depends, act.met) == (("approval",), False)


def test_an_approval_that_comes_between_two_turns_is_waited_for(scenario: FleetScenario) -> None:
    scenario.add("resting")
    scenario.settle()
    asks = rule(approvals=Approvals(when="always"))
    found = made(scenario, asks, answers=ReplayAnswers(approves=True, shut=known))
    # Asked for when the grace is over, given before the turn after.
    assert [(p.step, (p.at - START) / HOUR, p.met) for p in found] == [
        ("notify", 1, True),
        ("act", 5, True),
    ]


def test_the_last_readings_before_an_act_are_named_and_do_not_count_as_met(
    scenario: FleetScenario,
) -> None:
    scenario.add("resting")
    scenario.settle()
    notify, act = made(scenario, rule(), answers=ReplayAnswers())
    assert notify.met
    assert (act.depends, act.met) == (ACT_TIME_GATES, False)


def test_an_act_that_a_last_reading_refused_comes_at_the_next_turn(scenario: FleetScenario) -> None:
    scenario.add("resting")
    scenario.settle()

    def shut(decision: Decision) -> tuple[str, ...]:
        return ("awake",) if decision.at == START + 4 * HOUR else ()

    found = shown(made(scenario, rule(), answers=ReplayAnswers(shut=shut)))
    assert [(step, hour) for *_, step, hour in found] == [("notify", 1), ("act", 5)]


def test_what_its_owner_has_back_is_left_alone_as_the_service_does(scenario: FleetScenario) -> None:
    scenario.add("resting", rests((6, 8)), hours=6)
    scenario.add("resting", rests((6, 8)), begin=6, hours=HOURS)
    scenario.settle()
    hours = [hour for *_, step, hour in shown(made(scenario, rule())) if step == "act"]
    assert hours[0] == 4
    # Taken back at six: left alone for a day, and longer after each time.
    assert all(hour >= 6 + 24 for hour in hours[1:])
