"""A policy over the site's past: what it would have stopped, freed and harmed."""

import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from msgspec.structs import replace

from actions import plan as planning
from actions.backtest import Backtest, replay_policy
from actions.backtest.as_of import AsOf
from actions.backtest.result import compute_wilson_interval
from actions.backtest.stepwise import replay_analyzer
from actions.decide import decide
from actions.policy.budgets import BudgetUsage
from actions.policy.model import (
    ActionBudget,
    Match,
    Policy,
    PolicyAmount,
    RecurringWindow,
    ReversalLimit,
    Stage,
)
from analyzers.idle.analyzer import IdleAnalyzer
from fallow import case_identity
from fallow.action_models import Decision, Facts
from fallow.models import Finding, Recommendation, Subject, compute_finding_id
from fallow.protocols import PastFindings
from fallow.settings.idle import IdleSettings
from fallow.window import Window
from tests.actions.backtest.scenario import (
    BUSY,
    HOUR,
    HOURS,
    MINUTE,
    FleetScenario,
    moments,
    rests,
    rule,
)
from tests.analyzers.conftest import START, Memory

pytestmark = pytest.mark.slow

IDLE = IdleAnalyzer(IdleSettings(service_duration=timedelta(hours=2), min_expected_rest=None))
WHOLE = Window(START, START + HOURS * HOUR)


class WholeWorkloads:
    """The analyzer without what concerns single ranks: nothing of it is ever stopped."""

    def find(self, views: Any, window: Window) -> list[Finding]:
        return [f for f in IDLE.find(views, window) if f.verdict == "idle"]


def replayed(views: Memory, policy: Policy, at: list[datetime] | None = None) -> Backtest:
    when = at or moments()
    window = Window(START, max(when[-1], WHOLE.end))
    return replay_policy(
        policy, IDLE.replay(views, Window(START, when[-1]), when), views, window, when
    )


def asked(views: Memory, policy: Policy, at: list[datetime]) -> Backtest:
    past = replay_analyzer(WholeWorkloads(), views, WHOLE, at)
    return replay_policy(policy, past, views, WHOLE, at, exact=True)


@pytest.fixture
def scenario() -> Iterator[FleetScenario]:
    with FleetScenario() as one:
        yield one


def decided(made: Backtest, until: datetime) -> list[Any]:
    """Return what was decided by a moment, without what came of it."""
    return [
        (s.at, s.finding, s.subject, s.verb, s.owner, s.gpus, s.usd_per_day, s.idle_since,
         s.notified_at)
        for s in made.stops
        if s.at <= until
    ]  # fmt: skip


def test_what_rests_is_told_and_stopped_after_grace(scenario: FleetScenario) -> None:
    scenario.add("resting")
    scenario.settle()
    made = replayed(scenario.views, rule())
    (stop,) = made.stops
    assert stop.subject == ("c", "Job", "ns", "resting")
    assert (stop.notified_at, stop.at) == (START + 1 * HOUR, START + 4 * HOUR)
    assert stop.gpu_hours == pytest.approx(44)
    assert stop.usd == Decimal("105.60")
    assert stop.used_at is None
    assert stop.is_reversed is False


@pytest.mark.parametrize(("cool_down", "hours"), [(10, 24), (15, 30)])
def test_what_is_used_again_is_reversed_and_freed_only_until_then(
    scenario: FleetScenario, cool_down: int, hours: int
) -> None:
    scenario.add("back", rests((10, 12)))
    scenario.settle()
    made = replayed(scenario.views, rule(cool_down=timedelta(hours=cool_down)))
    first = made.stops[0]
    assert (first.at, first.used_at) == (START + 4 * HOUR, START + 10 * HOUR)
    assert first.gpu_hours == pytest.approx(6)
    assert first.is_reversed is True
    # Its owner came back at ten: as live it is left alone for a day, or for twice the cool-down.
    assert made.stops[1].at == START + (10 + hours) * HOUR
    assert (made.judged, made.reversals, made.met) == (1, 1, False)


def test_a_stop_is_not_judged_where_the_data_end_too_early(scenario: FleetScenario) -> None:
    scenario.add("late", rests((0, 30)))
    scenario.settle()
    (stop,) = replayed(scenario.views, rule()).stops
    assert stop.at == START + 34 * HOUR
    assert stop.is_reversed is None


def test_nothing_stopped_proves_nothing(scenario: FleetScenario) -> None:
    scenario.add("busy", rests((0, HOURS)))
    scenario.settle()
    made = replayed(scenario.views, rule())
    assert (made.stops, made.rate, made.met) == ((), None, False)


def test_a_budget_holds_what_comes_after_the_dearest(scenario: FleetScenario) -> None:
    for size in (1, 2, 3):
        scenario.add(f"w{size}", devices=size)
    scenario.settle()
    made = replayed(
        scenario.views, rule(budgets=(ActionBudget(workloads=PolicyAmount(Decimal(1))),))
    )
    stopped = [(s.subject[3], (s.at - START) / HOUR) for s in made.stops]
    assert stopped == [("w3", 4), ("w2", 28)]
    (blocked,) = [h for h in made.blocked if h.gate == "budget"]
    assert (blocked.budget, blocked.cases, blocked.never) == ("workloads 1 per 1d", 2, 1)


def test_more_cases_than_max_resources_abort_every_moment(scenario: FleetScenario) -> None:
    for n in range(4):
        scenario.add(f"w{n}")
    scenario.settle()
    made = replayed(scenario.views, rule(max_resources=PolicyAmount(Decimal(3))))
    assert made.stops == ()
    assert made.aborted[0][0] == START + 4 * HOUR
    assert "4 cases are more than max_resources" in made.aborted[0][1].text


def test_too_many_cases_of_a_cluster_abort_the_evaluations_of_this_cluster_only(
    scenario: FleetScenario,
) -> None:
    """Live, each cluster has an actor of its own, which aborts its own evaluations."""
    scenario.add("first")
    scenario.place()
    scenario.add_cluster("d")
    scenario.add("second")
    scenario.roll()
    policy = rule(max_resources=PolicyAmount(Decimal(1)))
    made = replayed(scenario.views, policy)
    assert [(s.subject[0], s.at) for s in made.stops] == [("d", START + 4 * HOUR)]
    times = [at for at, _, _ in made.aborted]
    assert {cluster for _, _, cluster in made.aborted} == {"c"}
    assert times == [START + n * HOUR for n in range(4, 4 + len(times))]
    assert {reason.text.partition(";")[0] for _, reason, _ in made.aborted} == {
        "rest: 2 cases of cluster c are more than max_resources (1 = 1)"
    }


def test_a_back_test_of_a_cluster_has_its_cases_only(scenario: FleetScenario) -> None:
    scenario.add("first")
    scenario.place()
    scenario.add_cluster("d")
    scenario.roll()
    when = moments()
    past = IDLE.replay(scenario.views, Window(START, when[-1]), when)
    only_c = rule(match=Match(analyzer=("idle",), cluster=("c",)))
    for policy, stopped in ((rule(), {"c": ["c"], "d": ["d"]}), (only_c, {"c": ["c"], "d": []})):
        both = replay_policy(policy, past, scenario.views, WHOLE, when)
        for cluster, names in stopped.items():
            made = replay_policy(policy, past, scenario.views, WHOLE, when, cluster=cluster)
            assert [stop.subject[0] for stop in made.stops] == names
            assert made.fingerprint == both.fingerprint


@pytest.mark.parametrize(("least", "hour"), [(1, 4), (6, 9), (7, 10)])
def test_the_shortest_stretch_of_a_policy_is_waited_for(
    scenario: FleetScenario, least: int, hour: int
) -> None:
    scenario.add("resting")
    scenario.settle()
    match = Match(analyzer=("idle",), min_duration=timedelta(hours=least))
    (stop,) = replayed(scenario.views, rule(match=match)).stops
    # Told at the first turn at which it had lasted so long, and three hours of grace.
    assert stop.at == START + hour * HOUR
    first = moments(hours=12)  # the stop is among them
    past = replay_analyzer(WholeWorkloads(), scenario.views, WHOLE, first)
    slow = replay_policy(rule(match=match), past, scenario.views, WHOLE, first, exact=True)
    assert [(s.at, s.notified_at, s.gpu_hours) for s in slow.stops] == [
        (stop.at, stop.notified_at, stop.gpu_hours)
    ]


@pytest.mark.parametrize(("silent", "hour"), [(True, 6), (False, 11)])
def test_missing_samples_begin_no_new_case_and_work_does(
    scenario: FleetScenario, silent: bool, hour: int
) -> None:
    """As live: from three to five its exporter is down, or it works."""
    scenario.add("resting", rests() if silent else rests((3, 5)))
    scenario.place()
    if silent:
        first, last = (f"TIMESTAMP '{START + n * HOUR:%Y-%m-%d %H:%M}'" for n in (3, 5))
        scenario.views.engine.execute(f"DELETE FROM sample WHERE ts >= {first} AND ts < {last}")
    scenario.roll()
    policy = rule(match=Match(analyzer=("idle",), min_duration=6 * HOUR))
    past = IDLE.replay(scenario.views, WHOLE, moments())
    sparse, whole = (
        replay_policy(policy, past, scenario.views, WHOLE, moments(), sparse=each)
        for each in (True, False)
    )
    (stop,) = sparse.stops
    assert stop.notified_at == START + hour * HOUR
    assert stop.idle_since == START + (0 if silent else 5) * HOUR
    assert sparse.stops == whole.stops


@pytest.mark.parametrize(("begins", "hour"), [(4, 4), (5, 5), (3, 4)])
def test_a_policy_acts_in_its_window_only(scenario: FleetScenario, begins: int, hour: int) -> None:
    scenario.add("resting")
    scenario.settle()
    window = RecurringWindow(f"0 {begins} * * *", timedelta(hours=2))
    (stop,) = replayed(scenario.views, rule(act_window=window)).stops
    assert stop.at == START + hour * HOUR


def test_who_is_protected_by_an_annotation_is_not_stopped(scenario: FleetScenario) -> None:
    scenario.add("kept", annotations=json.dumps({"fallow.dev/keep": "true"}))
    scenario.add("free")
    scenario.settle()
    assert [s.subject[3] for s in replayed(scenario.views, rule()).stops] == ["free"]


def test_the_fingerprint_is_that_of_the_policy_as_it_enforces(scenario: FleetScenario) -> None:
    scenario.add("resting")
    scenario.settle()
    one, other = replayed(scenario.views, rule()), replayed(scenario.views, rule(mode="enforce"))
    assert one.fingerprint == other.fingerprint == rule(mode="enforce").fingerprint
    assert replayed(scenario.views, rule(min_age=2 * HOUR)).fingerprint != one.fingerprint


def test_pressure_is_asked_anew_at_every_moment(scenario: FleetScenario) -> None:
    scenario.add("resting")
    scenario.views.rows(
        "pod",
        [
            {
                "cluster": "c", "uid": "w", "namespace": "ns", "pod": "waits-0",
                "phase": "Pending", "workload_kind": "Job", "workload": "waits",
                "gpu_request": 1.0, "gpu_resource": "nvidia.com/gpu",
                "created_at": START.replace(tzinfo=None) + 20 * HOUR,
                "first_seen": START.replace(tzinfo=None) + 20 * HOUR,
                "last_seen": START.replace(tzinfo=None) + HOURS * HOUR,
            }
        ],
    )  # fmt: skip
    scenario.settle()
    (stop,) = replayed(scenario.views, rule(on_pressure=True)).stops
    assert stop.at == START + 21 * HOUR


def test_a_case_with_a_veto_is_decided_again_when_the_veto_ends(
    scenario: FleetScenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pod of the workload waits until 20:00; what rests may wait for it."""
    scenario.add("resting")
    start = START.replace(tzinfo=None)
    scenario.views.rows(
        "pod",
        [
            {
                "cluster": "c", "uid": "w", "namespace": "ns", "pod": "resting-1",
                "phase": "Pending", "workload_kind": "Job", "workload": "resting",
                "workload_uid": "top-resting", "created_at": start - HOUR,
                "first_seen": start - HOUR, "last_seen": start + 20 * HOUR,
                "deleted_at": start + 20 * HOUR,
            }
        ],
    )  # fmt: skip
    scenario.settle()
    times: list[float] = []

    def decide_noted(policy: Policy, facts: Facts, usage: BudgetUsage, now: datetime) -> Decision:
        times.append((now - START) / HOUR)
        return decide(policy, facts, usage, now)

    monkeypatch.setattr(planning, "decide", decide_noted)
    (stop,) = replayed(scenario.views, rule()).stops
    assert (stop.notified_at, stop.at) == (START + 21 * HOUR, START + 24 * HOUR)
    assert times == [1, 21, 24]


EVENTFUL = moments(hours=34)
"""Until three hours after the last event: each moment is asked for by itself."""


@pytest.fixture(scope="module")
def eventful() -> Iterator[tuple[Memory, PastFindings]]:
    """A scenario of many kinds of rest, and its past as it is when asked at every moment."""
    with FleetScenario() as scenario:
        scenario.add("resting", devices=2)
        scenario.add("back", rests((10, 12), (30, 31)), kind="Notebook")
        scenario.add("serving", rests((8, 18)), kind="Deployment")
        scenario.add("short", hours=20)
        scenario.add("later", begin=7.5)
        scenario.add(
            "flickers", [BUSY if n % 50 == 7 else sample for n, sample in enumerate(rests())]
        )
        scenario.settle()
        scenario.views.rows(
            "event",
            [
                {
                    "cluster": "c", "uid": f"e{n}", "kind": "Node", "name": "n1", "reason": reason,
                    "ts": START.replace(tzinfo=None) + hours * HOUR,
                }
                for n, (hours, reason) in enumerate([(25, "NodeNotReady"), (27, "NodeReady")])
            ],
        )  # fmt: skip
        yield scenario.views, replay_analyzer(WholeWorkloads(), scenario.views, WHOLE, EVENTFUL)


POLICIES = [
    rule(),
    rule(cool_down=timedelta(hours=2), budgets=(ActionBudget(gpus=PolicyAmount(Decimal(3))),)),
    rule(match=Match(analyzer=("idle",), gpu_hours=7.0, usd_per_day=Decimal(60))),
    rule(stages=(*rule().stages[:3], Stage("snapshot", required=True), rule().stages[3])),
    rule(min_age=timedelta(hours=60), max_resources=PolicyAmount(Decimal("0.4"), share=True)),
]


@pytest.mark.parametrize("policy", POLICIES)
def test_the_replay_decides_as_asking_at_every_moment_does(
    eventful: tuple[Memory, PastFindings], policy: Policy
) -> None:
    """It asks the analyzer once for all moments, and decides only where an answer may differ."""
    views, past = eventful
    fast = replayed(views, policy, EVENTFUL)
    slow = replay_policy(policy, past, views, WHOLE, EVENTFUL, exact=True, sparse=False)
    assert fast.stops == slow.stops
    assert (fast.notified, fast.cases) == (slow.notified, slow.cases)
    assert fast.aborted == slow.aborted
    assert len(fast.stops) + len(fast.aborted) > 0


@pytest.mark.slow
@settings(
    max_examples=1,
    suppress_health_check=[HealthCheck.too_slow],
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)
@given(
    hour=st.integers(6, 24),
    used=st.booleans(),
    pods=st.booleans(),
    away=st.booleans(),
    dear=st.booleans(),
)
def test_rows_after_a_moment_never_change_what_was_decided_at_it(
    hour: int, used: bool, pods: bool, away: bool, dear: bool
) -> None:
    """Point in time: whatever comes later, decisions up to `hour` stay what they were."""
    until = START + hour * HOUR
    after = until.replace(tzinfo=None)
    with FleetScenario() as scenario:
        scenario.add("resting", rests()[: hour * 12], devices=2, hours=hour)
        scenario.add("back", rests((5, 6))[: hour * 12], kind="Notebook", hours=hour)
        scenario.settle()
        policy = rule(cool_down=HOUR, on_pressure=False)
        before = decided(replayed(scenario.views, policy, moments(hours=hour)), until)
        scenario.go_on(hour, [BUSY if used else rests()[0]] * ((HOURS - hour) * 12))
        if pods:
            scenario.add("new", begin=hour + 0.5)
        if away:
            row = {"cluster": "c", "uid": "e", "kind": "Node", "name": "n1", "ts": after}
            scenario.views.rows("event", [row | {"reason": "NodeNotReady"}])
        if dear:
            row = {
                "source": "test", "provider": "override", "region": "", "zone": "",
                "instance_type": "", "gpu_model": "", "cluster": "c", "term": "on-demand",
                "valid_from": after, "as_of": after, "gpu_count": 1,
                "node_usd_h": Decimal(99), "gpu_usd_h": Decimal(99),
            }  # fmt: skip
            scenario.views.rows("rate", [row])
        scenario.roll()
        assert decided(replayed(scenario.views, policy, moments()), until) == before
        assert decided(asked(scenario.views, policy, moments(hours=hour)), until) == before


@pytest.mark.parametrize(
    ("bad", "of", "low", "high"),
    [
        # Brown, Cai and DasGupta (2001) and R's prop.test(correct = FALSE).
        (0, 10, 0.0, 0.2775328),
        (1, 10, 0.0178762, 0.4041500),
        (5, 100, 0.0215437, 0.1117509),
        (10, 10, 0.7224672, 1.0),
        (0, 0, 0.0, 1.0),
    ],
)
def test_wilsons_interval(bad: int, of: int, low: float, high: float) -> None:
    assert compute_wilson_interval(bad, of) == pytest.approx((low, high), abs=1e-6)


def test_a_rate_is_met_where_the_upper_end_of_its_interval_is_within_it(
    scenario: FleetScenario,
) -> None:
    scenario.add("back", rests((10, 12)))
    for n in range(3):
        scenario.add(f"w{n}")
    scenario.settle()
    # 1 of 4: the upper end is 75.14 % (R: binom.test(1, 4, alternative = "less")).
    made = replayed(scenario.views, rule(reversals=ReversalLimit(rate=0.752)))
    assert (made.judged, made.reversals) == (4, 1)
    assert made.met
    assert not replayed(scenario.views, rule(reversals=ReversalLimit(rate=0.751))).met


def test_three_stops_without_a_reversal_prove_no_rate_of_one_percent(
    scenario: FleetScenario,
) -> None:
    for n in range(3):
        scenario.add(f"w{n}")
    scenario.settle()
    made = replayed(scenario.views, rule(reversals=ReversalLimit(rate=0.01)))
    assert (made.judged, made.reversals, made.met) == (3, 0, False)
    assert made.proof.missing_stops == 296
    assert made.proof.upper_end == pytest.approx(0.6316, abs=1e-4)


def test_used_again_is_told_to_the_five_minutes_where_moments_are_not_whole_hours(
    scenario: FleetScenario,
) -> None:
    scenario.add("back", rests((10, 12)))
    scenario.settle()
    made = replayed(scenario.views, rule(), moments(MINUTE * 6))
    assert made.stops[0].used_at == START + 10 * HOUR


class Wasteful:
    """Finds one thing that wastes without resting, at every moment."""

    def find(self, _views: Any, window: Window) -> list[Finding]:
        advice = Recommendation(
            "annotate", "Job/ns/resting", "it wastes", reversible=True, gpu_hours_per_day=24.0
        )
        return [
            Finding(
                id="w" * 12, analyzer="third", kind="waste", verdict="wasteful",
                subject=Subject("c", "ns", "Job", "resting"), window=window,
                evidence="confirmed", confidence=1.0, gpu_hours=1.0, usd=None, details={},
                recommendations=(advice,),
            )
        ]  # fmt: skip


def test_what_tells_nothing_of_its_looks_is_seen_by_them_as_they_were(
    scenario: FleetScenario,
) -> None:
    scenario.add("resting")
    scenario.settle()
    stages = (Stage("observe"), Stage("notify"), Stage("act", verbs=("annotate",)))
    at = [START + n * 12 * HOUR for n in range(1, 4)]
    past = replay_analyzer(Wasteful(), scenario.views, WHOLE, at)
    policy = rule(match=Match(kind=("waste",)), stages=stages)
    made = replay_policy(policy, past, scenario.views, WHOLE, at, exact=True)
    assert [(s.verb, (s.at - START) / HOUR) for s in made.stops] == [("annotate", 24)]


class Sliding(Wasteful):
    """Names its finding by the window that it is asked for, as analyzers of the last days do."""

    def find(self, views: Any, window: Window) -> list[Finding]:
        (found,) = super().find(views, window)
        start = window.start
        return [replace(found, id=compute_finding_id("third", "waste", found.subject, start))]


def test_a_window_that_moves_on_makes_no_new_case_of_what_goes_on(scenario: FleetScenario) -> None:
    scenario.add("resting")
    scenario.settle()
    at = [START + n * 6 * HOUR for n in range(1, 8)]
    past = replay_analyzer(Sliding(), scenario.views, WHOLE, at, 12 * HOUR)
    found = [past.finding(row) for row in range(past.rows.num_rows)]
    assert len({f.id for f in found}) == 1
    assert {f.window.start for f in found} == {START}
    judged = [case_identity.get_judged_part(f).start for f in found]
    assert max(at - start for at, start in zip(at, judged, strict=True)) == 12 * HOUR


def test_views_of_the_past_tell_the_phase_that_a_pod_had_then(scenario: FleetScenario) -> None:
    for name, phase in (("done", "Succeeded"), ("failed", "Failed"), ("runs", "Running")):
        ends = None if phase == "Running" else START.replace(tzinfo=None) + 20 * HOUR
        scenario.add(name, begin=10, phase=phase, finished_at=ends)
    scenario.settle()

    def phases(hours: int) -> list[tuple[str, str]]:
        views = AsOf(scenario.views, START + hours * HOUR)
        rows = views.query("SELECT workload, phase FROM pod ORDER BY workload").to_pylist()
        return [(row["workload"], row["phase"]) for row in rows]

    whose = ("done", "failed", "runs")
    assert phases(5) == [*zip(whose, ("Pending",) * 3, strict=True)]
    assert phases(15) == [*zip(whose, ("Running",) * 3, strict=True)]
    assert phases(21) == [*zip(whose, ("Succeeded", "Failed", "Running"), strict=True)]
