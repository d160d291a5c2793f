"""Plans: one decision per object, by cost, within budgets, and all refusals with why."""

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pytest
from msgspec.structs import replace

from actions.gate_answers import answer_gates, find_subject, read_remedies
from actions.gates import list_gates
from actions.plan import plan
from actions.policy.budgets import FleetSize
from actions.policy.model import ActionBudget, Allow, Approvals, Match, PolicyAmount, Stage
from analyzers.idle.evidence import SOFT, UNACTIONABLE, IdleSignals, judge_signals
from fallow.action_models import CaseHistory, Facts, compute_decision_id
from fallow.errors import UsageError
from fallow.models import Subject
from tests.actions.cases import HOUR, NOW, POLICY, SPENT, TOLD, facts, finding


def case(name: str, usd: str | None = "10", **changes: Any) -> Facts:
    """Return a case that passes every gate, about a workload of this name."""
    made = facts(**changes)
    subject = replace(made.finding.subject, workload=name)
    about = replace(made.finding, id=f"id-{name}", subject=subject)
    return replace(made, finding=about, usd_per_day=None if usd is None else Decimal(usd))


WIDE = replace(POLICY, max_resources=PolicyAmount(Decimal(100)))


def test_the_dearest_comes_first_and_takes_the_budget() -> None:
    rule = replace(WIDE, budgets=(ActionBudget(workloads=PolicyAmount(Decimal(2))),), concurrent=10)
    made = plan([rule], [case("a", "1"), case("b", "30"), case("c", "20")], SPENT, NOW)
    answer = [(d.subject[3], d.ruling) for d in made.decisions]
    assert answer == [("b", "allow"), ("c", "allow"), ("a", "hold")]
    assert [r.gate for r in made.decisions[2].reasons] == ["budget"]


def test_who_took_it_back_before_comes_later() -> None:
    back = replace(TOLD, restored_at=(NOW - 20 * 24 * HOUR,))
    cases = [case("a", "30", history=back), case("b", "20")]
    assert [d.subject[3] for d in plan([WIDE], cases, SPENT, NOW).decisions] == ["b", "a"]


def test_what_has_no_price_comes_last() -> None:
    made = plan([WIDE], [case("a", None), case("b", "0.01")], SPENT, NOW)
    assert [d.subject[3] for d in made.decisions] == ["b", "a"]


def test_an_object_gets_one_decision_by_the_policy_that_goes_furthest() -> None:
    watching = replace(WIDE, name="observe-all", stages=(Stage("observe"),))
    second = replace(case("a"), finding=replace(case("a").finding, id="other"))
    made = plan([watching, WIDE], [case("a"), second], SPENT, NOW)
    assert [(d.policy, d.step) for d in made.decisions] == [("idle-notebooks", "act")]


NOTICES = (Stage("observe"), Stage("notify"))
ACTS = (*NOTICES, Stage("act", do=("suspend",), verbs=("stop",)))


@pytest.mark.parametrize(
    ("other", "shown"),
    [
        ({"stages": NOTICES}, ("idle-notebooks", "act", "hold")),
        ({"mode": "notify", "stages": ACTS}, ("idle-notebooks", "act", "hold")),
        ({"approvals": Approvals(when="always"), "stages": ACTS},
         ("idle-notebooks", "act", "hold")),
        ({"stages": ACTS, "allow": Allow()}, ("idle-notebooks", "act", "hold")),
        ({"stages": ACTS}, ("idle-notebooks", "act", "hold")),
        ({"stages": ACTS, "name": "trusted"}, ("trusted", "notify", "allow")),
    ],
    ids=["only notifies", "mode notify", "would wait for approval too", "may act nowhere",
         "no back-test proves it", "would act by itself"],
)  # fmt: skip
def test_a_notice_does_not_hide_an_act_that_waits_for_approval(
    other: dict[str, Any], shown: tuple[str, str, str]
) -> None:
    acting = replace(WIDE, approvals=Approvals(when="always"))
    notifying = replace(WIDE, **{"name": "other", **other})
    histories = {(notifying.name, "id-a"): CaseHistory()}
    usage = replace(SPENT, trusted=SPENT.trusted | {"trusted"})
    (made,) = plan([notifying, acting], [case("a")], usage, NOW, histories).decisions
    assert (made.policy, made.step, made.ruling) == shown


def test_a_notice_hides_an_act_that_waits_for_more_than_approval() -> None:
    acting = replace(WIDE, approvals=Approvals(when="always"))
    notifying = replace(WIDE, name="other", stages=NOTICES)
    histories = {
        ("other", "id-a"): CaseHistory(),
        ("idle-notebooks", "id-a"): replace(TOLD, last_action_at=NOW - HOUR),
    }
    (made,) = plan([notifying, acting], [case("a")], SPENT, NOW, histories).decisions
    assert (made.policy, made.step) == ("other", "notify")


def test_histories_are_by_policy_and_finding() -> None:
    result = {("idle-notebooks", "id-a"): CaseHistory()}
    (made,) = plan([WIDE], [case("a")], SPENT, NOW, result).decisions
    assert (made.step, made.ruling) == ("notify", "allow")


def test_the_eleventh_case_of_ten_aborts_the_whole_run_before_any_write() -> None:
    """Cloud Custodian stops after ten; Fallow stops before the first."""
    rule = replace(WIDE, max_resources=PolicyAmount(Decimal(10)), concurrent=1)
    cases = [case(f"w{n}") for n in range(11)]
    made = plan([rule], cases, SPENT, NOW)
    assert list(made.aborted) == ["c"]
    assert made.aborted["c"].text == (
        "idle-notebooks: 11 cases are more than max_resources (10 = 10); nothing at all is done"
    )
    assert not plan([rule], cases[:10], SPENT, NOW).aborted


def of_clusters(cases: Sequence[Facts], *clusters: str) -> list[Facts]:
    """Return cases whose workloads have equal names in several clusters."""
    return [
        replace(
            made,
            finding=replace(
                made.finding,
                id=f"{made.finding.id}-{cluster}",
                subject=replace(made.finding.subject, cluster=cluster),
            ),
        )
        for cluster in clusters
        for made in cases
    ]


TWO = {name: FleetSize(workloads=100, gpus=100.0) for name in ("c", "d")}


@pytest.mark.parametrize("scope", ["cluster", "fleet"])
def test_too_many_cases_of_a_cluster_leave_the_plan_of_another_with_equal_names_alone(
    scope: Any,
) -> None:
    """Each cluster has an actor of its own, which aborts only its own turns."""
    most = ActionBudget(workloads=PolicyAmount(Decimal(2)), scope=scope)
    rule = replace(WIDE, max_resources=PolicyAmount(Decimal(2)), budgets=(most,), concurrent=2)
    # The cluster with too many cases has the most expensive ones, so its acts come first.
    many = of_clusters([case("a", "90"), case("b", "80"), case("x", "70")], "c")
    few = of_clusters([case("a"), case("b")], "d")
    usage = replace(SPENT, clusters=TWO, elsewhere=())
    made = plan([rule], [*many, *few], usage, NOW)
    assert {cluster: reason.text for cluster, reason in made.aborted.items()} == {
        "c": "idle-notebooks: 3 cases of cluster c are more than max_resources (2 = 2); "
        "nothing at all is done in this cluster"
    }
    acts = [(d.subject[3], d.ruling) for d in made.decisions if d.subject[0] == "d"]
    assert acts == [("a", "allow"), ("b", "allow")]
    assert not plan([rule], few, usage, NOW).aborted
    both = plan([rule], of_clusters(many[:3], "c", "d"), usage, NOW)
    assert list(both.aborted) == ["c", "d"]


def test_actions_under_way_in_a_cluster_leave_room_in_another() -> None:
    rule = replace(WIDE, concurrent=1)
    cases = of_clusters([case("a")], "c", "d")
    made = plan([rule], cases, replace(SPENT, clusters=TWO), NOW)
    assert [(d.subject[0], d.ruling) for d in made.decisions] == [("c", "allow"), ("d", "allow")]
    usage = replace(SPENT, clusters=TWO, concurrent=1)
    made = plan([rule], cases, usage, NOW, under_way={"c": 1})
    assert [(d.subject[0], d.ruling) for d in made.decisions] == [("c", "hold"), ("d", "allow")]


def test_all_that_is_refused_says_why() -> None:
    other = replace(WIDE, name="jobs", match=Match(workload_kind=("Job",)))
    bare = replace(case("b"), uid=None)
    made = plan([other, WIDE], [bare], SPENT, NOW)
    (refused,) = made.refused
    assert (refused.policy, [r.gate for r in refused.reasons]) == ("idle-notebooks", ["identity"])
    (unmatched,) = plan([other], [case("a")], SPENT, NOW).refused
    assert unmatched.policy == ""
    assert "jobs: workload_kind is Notebook" in unmatched.reasons[0].text
    (lawless,) = plan([], [case("a")], SPENT, NOW).refused
    assert lawless.reasons[0].text == "there are no policies"


def test_why_not_asks_every_gate_and_says_what_would_help() -> None:
    shut = replace(case("a"), coverage=0.5, uid=None)
    gates = answer_gates(replace(WIDE, mode="notify"), shut, SPENT, NOW)
    assert [a.gate for a in gates] == [g.gate for g in list_gates()]
    no = {a.gate: a for a in gates if not a.open}
    assert set(no) == {"coverage", "mode", "identity"}
    assert no["coverage"].refusal == "coverage is 50.0%, below 95%"
    assert no["mode"].way == "set `mode: enforce`"


def test_an_approval_names_a_request_of_the_journal_or_what_makes_it() -> None:
    rule = replace(WIDE, approvals=Approvals(when="always"))
    request = compute_decision_id(rule.name, "id-a", "act")
    ways = [
        next(a.way for a in answer_gates(rule, case("a"), SPENT, NOW, requested) if not a.open)
        for requested in ((), {request})
    ]
    assert ways == [read_remedies()["request"], f"`fallow approve {request}`"]


def test_why_not_says_until_when() -> None:
    gates = answer_gates(
        WIDE, replace(case("a"), history=CaseHistory(notified_at=NOW - HOUR)), SPENT, NOW
    )
    (grace,) = [a for a in gates if a.gate == "grace"]
    assert grace.until == NOW + 23 * HOUR


@pytest.mark.parametrize("gate", [g.gate for g in list_gates()])
def test_every_gate_has_a_way(gate: str) -> None:
    assert read_remedies().get(gate)


@pytest.mark.parametrize(
    ("signals", "missing"),
    [
        (IdleSignals(physics=True, host=True, no_request_metrics=True), "of intent: the requests"),
        (IdleSignals(physics=True), "host (kubelet) or intent"),
        (IdleSignals(host=True, intent=True), "of physics"),
        (IdleSignals(), "of physics"),
    ],
)
def test_the_way_of_the_evidence_names_the_signal_that_is_missing(
    signals: IdleSignals, missing: str
) -> None:
    (way,) = list_evidence_ways(judge_signals(signals).reasons)
    assert missing in way
    assert ("host" in way) is (signals.host is None)


@pytest.mark.parametrize("name", [*SOFT, *UNACTIONABLE])
def test_the_way_of_a_veto_names_no_signal_that_is_there(name: str) -> None:
    signals = IdleSignals(physics=True, host=True, intent=True, **{name: True})
    (way,) = list_evidence_ways(judge_signals(signals).reasons)
    assert way != read_remedies()["evidence"]
    assert ("missing signal" in way) is (name == "no_request_metrics")


@pytest.mark.parametrize("name", ["physics", "host"])
def test_the_way_names_no_signal_that_contradicts_it(name: str) -> None:
    signals = replace(IdleSignals(physics=True, host=True, intent=True), **{name: False})
    assert list_evidence_ways(judge_signals(signals).reasons) == [
        "nothing: a signal speaks against it"
    ]


def test_evidence_without_a_known_reason_names_the_command_that_has_its_signals() -> None:
    assert list_evidence_ways(()) == [read_remedies()["evidence"]]


def list_evidence_ways(reasons: Sequence[str]) -> list[str]:
    """Return what answers say would open the gate `evidence` for these reasons of a finding."""
    made = case("a")
    weak = replace(made.finding, details={"reasons": [*reasons]})
    gates = answer_gates(WIDE, replace(made, finding=weak), SPENT, NOW)
    return [answer.way for answer in gates if answer.gate == "evidence"]


WORKLOADS = [
    Subject("c", "team-a", "Notebook", "home"),
    Subject("c", "team-b", "Notebook", "home"),
    Subject("c", "team-b", "Job", "train"),
    Subject("c", "", "Queue", "data"),
]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Notebook/team-a/home", 0),
        ("team-a/home", 0),
        ("team-b/Notebook/home", 1),
        ("train", 2),
        ("TRAI", 2),
        ("Job/", 2),
        ("Queue/data", 3),
        ("Queue//data", 3),
    ],
)
def test_a_workload_is_meant_by_what_only_it_has(text: str, expected: int) -> None:
    assert find_subject(text, WORKLOADS) == WORKLOADS[expected]


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("home", "may be several workloads", "Notebook/team-a/home, Notebook/team-b/home"),
        ("nobody", "no workload 'nobody' was seen lately", "Kind/namespace/name"),
    ],
)
def test_who_is_not_clearly_meant_is_asked_for(text: str, message: str, hint: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        find_subject(text, WORKLOADS)
    assert hint in (caught.value.hint or "")


def test_cases_of_tests_pass_every_gate() -> None:
    assert finding().verdict == "idle"
    assert plan([WIDE], [case("a")], SPENT, NOW).decisions[0].step == "act"
