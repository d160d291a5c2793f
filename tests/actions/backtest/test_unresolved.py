"""Cases of history from before the first inventory are named, and never stopped."""

from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from actions.backtest import Backtest, replay_policy
from actions.policy.model import Match, Policy
from analyzers.idle.analyzer import IdleAnalyzer
from fallow.settings.idle import IdleSettings
from fallow.window import Window
from tests.actions.backtest.scenario import HOUR, HOURS, FleetScenario, moments, rule
from tests.analyzers.conftest import START

pytestmark = pytest.mark.slow

WHOLE = Window(START, START + HOURS * HOUR)
FIRST = 24
"""Hours after which the first inventory is taken."""


@pytest.fixture
def scenario() -> Iterator[FleetScenario]:
    """Return a scenario whose inventory begins after a day: one pod ended before, one is there."""
    with FleetScenario() as scenario:
        scenario.add("resting")
        scenario.add("gone-0", kind="unresolved", hours=20, pod="gone-0")
        scenario.settle()
        scenario.views.engine.execute("DELETE FROM pod WHERE pod = 'gone-0'")
        first = f"{START + FIRST * HOUR:%Y-%m-%d %H:%M}"
        scenario.views.engine.execute(f"UPDATE pod SET first_seen = TIMESTAMP '{first}'")
        yield scenario


def replayed(scenario: FleetScenario, policy: Policy) -> Backtest:
    idle = IdleAnalyzer(IdleSettings(min_expected_rest=None))
    past = idle.replay(scenario.views, WHOLE, moments())
    return replay_policy(policy, past, scenario.views, WHOLE, moments())


def named(made: Backtest) -> dict[tuple[str, ...], str]:
    return {case.subject: case.why for case in made.unresolved}


GONE = ("c", "unresolved", "ns", "gone-0")


def test_what_was_over_before_the_first_inventory_is_named_and_not_stopped(
    scenario: FleetScenario,
) -> None:
    made = replayed(scenario, rule())
    assert [s.subject[3] for s in made.stops] == ["resting"]
    (case,) = made.unresolved
    assert case.subject == GONE
    assert case.why == "it was over before the first inventory (2026-11-02 00:00 UTC)"
    assert (case.idle_since, case.until) == (START, START + 20 * HOUR)
    assert case.gpu_hours == pytest.approx(20)


def test_a_policy_of_other_namespaces_is_not_about_it(scenario: FleetScenario) -> None:
    elsewhere = replace(rule().match, namespaces=("another",))
    assert replayed(scenario, rule(match=elsewhere)).unresolved == ()


@pytest.mark.parametrize(("least", "count"), [(20, 1), (21, 0)])
def test_it_rested_as_long_as_the_policy_asks(
    scenario: FleetScenario, least: int, count: int
) -> None:
    match = Match(analyzer=("idle",), kind=("idle_job",), min_duration=least * HOUR)
    assert len(replayed(scenario, rule(match=match)).unresolved) == count


def test_a_site_without_any_inventory_resolves_nothing(scenario: FleetScenario) -> None:
    scenario.views.engine.execute("DELETE FROM pod")
    made = replayed(scenario, rule())
    assert made.stops == ()
    none = "no inventory was ever stored"
    assert named(made) == {GONE: none, ("c", "Job", "ns", "resting"): none}


def test_an_inventory_without_the_owners_uid_resolves_nothing(scenario: FleetScenario) -> None:
    scenario.views.engine.execute("UPDATE pod SET workload_uid = NULL")
    made = replayed(scenario, rule())
    assert named(made)["c", "Job", "ns", "resting"] == "the inventory tells no uid of its owner"


def test_the_inventory_of_a_later_day_resolves_what_lived_on(scenario: FleetScenario) -> None:
    assert ("c", "Job", "ns", "resting") not in named(replayed(scenario, rule()))
