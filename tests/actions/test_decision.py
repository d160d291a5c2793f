"""What is decided about a case: a pure function, and whatever is not known acts on nothing."""

import csv
import math
from collections.abc import Iterator
from datetime import datetime, timedelta
from decimal import Decimal
from importlib.resources import files
from itertools import product
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actions.decide import SNAPSHOT_AGE, decide, drop_details
from actions.gates import CHECKS, list_gates
from actions.policy.budgets import BudgetUsage, CountedAction
from actions.policy.model import (
    ActionBudget,
    Allow,
    Approvals,
    Blackout,
    Match,
    Policy,
    PolicyAmount,
    RecurringWindow,
    Stage,
)
from actions.recommend import read_verbs, recommend
from fallow.action_models import CaseHistory, Decision, Facts, IncidentAdvice, Waiter
from fallow.disruptions import CoveringBudget
from fallow.models import Finding
from tests.actions.cases import (
    HOUR,
    NOW,
    WANTED,
    advice,
    facts,
    finding,
    history,
    policy,
    spent,
)

DOUBTS: dict[str, tuple[Any, ...]] = {
    "coverage": (0.99, 0.94, None),
    "seen_until": (NOW, NOW - timedelta(seconds=61), NOW + HOUR, None),
    "interval_s": (30.0, None),
    "conflicts": ((), ("power is high, activity is 0",)),
    "owner": ("team-a", None),
    "owner_resolved": (True, False, None),
    "shared": (False, True, None),
    "nodes_ready": (True, False, None),
    "skew_s": (0.0, 31.0, -31.0, None),
    "vetoes": ((), ("bytes move over PCIe",)),
}
"""The first of each is good."""
PASTS = (CaseHistory(), history())
SNAPSHOT = Stage("snapshot", parts=("manifest",), required=True)


def decided(
    given_facts: Facts | None = None,
    given_policy: Policy | None = None,
    given_spent: BudgetUsage | None = None,
    now: datetime = NOW,
) -> Decision:
    return decide(given_policy or policy(), given_facts or facts(), given_spent or spent(), now)


def held_finding(*names: str) -> Finding:
    """Return an idle finding that only budgets or requests hold, by the names that lift them."""
    holds = [{"why": f"held by PDB {name}: it allows none", "name": name} for name in names]
    return finding(details={**finding().details, "actionable": False, "held_by": holds})


def gate_names(decision: Decision) -> list[str]:
    return [reason.gate for reason in decision.reasons]


def acts(decision: Decision) -> bool:
    """Say whether anything at all would be done to anybody: a notice counts."""
    return decision.ruling == "allow" and decision.step != "observe"


def combinations() -> Iterator[dict[str, Any]]:
    for values in product(*DOUBTS.values()):
        yield dict(zip(DOUBTS, values, strict=True))


def test_the_whole_truth_table_any_doubt_leaves_the_action_set_empty() -> None:
    good = {name: values[0] for name, values in DOUBTS.items()}
    seen = 0
    for row in combinations():
        made = facts(**row)
        for past in PASTS:
            decision = decided(msgspec.structs.replace(made, history=past))
            assert acts(decision) == (row == good), (row, past, decision)
            assert (decision.ruling == "deny" and bool(decision.reasons)) == (row != good)
            seen += 1
    assert seen == math.prod(len(v) for v in DOUBTS.values()) * len(PASTS)


@given(st.data())
def test_no_policy_however_bold_acts_on_a_doubt(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(DOUBTS)))
    bad = {name: data.draw(st.sampled_from(DOUBTS[name][1:]))}
    bold = policy(
        match=Match(),
        allow=Allow(("*",), (), production=True, cluster_objects=True),
        stages=data.draw(
            st.sampled_from(
                [
                    (Stage("act", verbs=("*",)),),
                    (Stage("notify"), Stage("act", verbs=("*",))),
                    (Stage("notify"),),
                ]
            )
        ),
        min_age=timedelta(0),
        concurrent=1000,
    )
    past = data.draw(st.sampled_from(PASTS))
    assert not acts(decided(facts(**bad, history=past), bold))


@pytest.mark.parametrize(
    "odd",
    [
        {"coverage": math.nan},
        {"skew_s": math.nan},
        {"interval_s": math.nan},
        {"interval_s": math.inf},
        {"interval_s": 0.0},
        {"interval_s": -30.0},
        {"owner": ""},
        {"gpus": math.nan},
        {"gpus": -1.0},
    ],
)
def test_figures_that_are_none_are_doubts_too(odd: dict[str, Any]) -> None:
    able = policy(budgets=(ActionBudget(gpus=PolicyAmount(Decimal(100))),))
    assert acts(decided(given_policy=able))
    assert not acts(decided(facts(**odd), able))


def test_a_case_without_doubt_is_acted_upon_after_notice_and_grace() -> None:
    decision = decided()
    assert (decision.step, decision.ruling, decision.reasons) == ("act", "allow", ())
    assert decision.verb == "stop"
    assert decision.subject == ("c", "Notebook", "team-a", "w")
    assert decision.parameters["capabilities"] == ["suspend"]


def test_every_gate_of_the_table_is_asked_in_its_order_and_no_other() -> None:
    text = files("actions").joinpath("gates.csv").read_text(encoding="utf-8")
    rows = list(csv.DictReader(text.splitlines()))
    assert [g.gate for g in list_gates()] == [row["gate"] for row in rows]
    assert {g.gate for g in list_gates()} == set(CHECKS)
    assert all(row["question"] and row["source"] for row in rows)


ONE_BY_ONE: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    # gate: what to change in the facts, in the policy, in what is spent
    "match": ({}, {"match": Match(kind=("idle_job",))}, {}),
    "frozen": ({}, {}, {"frozen": "kill switch"}),
    "verdict": ({"finding": finding(verdict="partly idle")}, {}, {}),
    "evidence": ({"finding": finding(evidence="suspected")}, {}, {}),
    "held": ({"finding": held_finding("ml/keep")}, {}, {}),
    "coverage": ({"coverage": 0.9}, {}, {}),
    "fresh": ({"seen_until": NOW - HOUR}, {}, {}),
    "conflict": ({"conflicts": ("two sources",)}, {}, {}),
    "skew": ({"skew_s": 40.0}, {}, {}),
    "ready": ({"nodes_ready": False}, {}, {}),
    "shared": ({"shared": True}, {}, {}),
    "resolved": ({"owner_resolved": False}, {}, {}),
    "owner": ({"owner": None}, {}, {}),
    "veto": ({"vetoes": ("checkpoint under way",)}, {}, {}),
    "keep": ({"history": history(kept_until=NOW + HOUR)}, {}, {}),
    "mode": ({}, {"mode": "notify"}, {}),
    "namespace": ({}, {"allow": Allow()}, {}),
    "kind": ({}, {"allow": Allow(("team-*",), ("Job",))}, {}),
    "production": ({"priority_class": "prod-high"}, {}, {}),
    "verb": ({"recommendation": advice(reversible=False)}, {}, {}),
    "identity": ({"uid": None}, {}, {}),
    "fights": ({"autoscaled_by": ("Argo CD",)}, {}, {}),
    "open": ({"history": history(open_action="a1")}, {}, {}),
    "reverted": ({"history": history(contested_until=NOW + HOUR)}, {}, {}),
    "age": ({"created_at": NOW - timedelta(minutes=59)}, {}, {}),
    "benefit": (
        {"recommendation": advice(gpu_hours_per_day=0.0, usd_per_day=None), "usd_per_day": None},
        {},
        {},
    ),
    "pressure": ({}, {"on_pressure": True}, {}),
    "cool-down": ({"history": history(last_action_at=NOW - HOUR)}, {}, {}),
    "checkpoint_age": ({}, {"checkpoint_age": HOUR}, {}),
    "incident": (
        {
            "recommendation": advice("restart"),
            "incident": IncidentAdvice(
                "i", "gpu memory", "hold", "the evidence contradicts", ("n",)
            ),
        },
        {
            "stages": (
                Stage("observe"),
                Stage("notify"),
                Stage("grace", wait=24 * HOUR),
                Stage("act", do=("restart",), verbs=("restart",)),
            )
        },
        {},
    ),
    "wanted": ({"finding": finding(details={"actionable": True, "reasons": []})}, {}, {}),
    "trusted": ({}, {}, {"trusted": frozenset({"another"})}),
    "demoted": ({}, {}, {"demoted": frozenset({"idle-notebooks"})}),
    "window": ({}, {"act_window": RecurringWindow("0 20 * * *", timedelta(hours=10))}, {}),
    "blackout": ({}, {"blackouts": (Blackout("release", NOW - HOUR, NOW + HOUR),)}, {}),
    "budget": ({}, {"budgets": (ActionBudget(gpus=PolicyAmount(Decimal(1))),)}, {}),
    "concurrent": ({}, {}, {"concurrent": 2}),
    "approval": ({}, {"approvals": Approvals("always")}, {}),
    "first-sight": ({"history": history(first_seen=None)}, {}, {}),
    "notice": ({"history": history(notified_at=None)}, {}, {}),
    "grace": ({"history": history(notified_at=NOW - HOUR)}, {}, {}),
}


@pytest.mark.parametrize("name", [g.gate for g in list_gates()])
def test_each_gate_alone_keeps_the_act_away_and_rules_as_the_table_says(name: str) -> None:
    of_facts, of_policy, of_spent = ONE_BY_ONE[name]
    decision = decided(facts(**of_facts), policy(**of_policy), spent(**of_spent))
    row = next(g for g in list_gates() if g.gate == name)
    assert gate_names(decision) == [name], decision
    if name == "notice":
        assert (decision.step, decision.ruling) == ("notify", "allow")
    else:
        assert decision.ruling == row.ruling
        assert decision.step == ("grace" if name == "grace" else "act")
    untold = facts(**{**of_facts, "history": CaseHistory()})
    first = decided(untold, policy(**of_policy), spent(**of_spent))
    assert first.step == "notify"
    is_keep = name == "keep"  # which the history holds
    assert (first.ruling == "allow") == (row.guards == "act" or is_keep)


@given(st.sets(st.sampled_from(sorted(set(ONE_BY_ONE) - {"notice"})), max_size=6))
def test_reasons_are_exactly_the_gates_that_are_shut_in_their_order(shut: set[str]) -> None:
    merged: tuple[dict[str, Any], ...] = ({}, {}, {})
    expected = set()
    for name in sorted(shut):
        if any(set(into) & set(more) for into, more in zip(merged, ONE_BY_ONE[name], strict=True)):
            continue  # both would change the same field
        for into, more in zip(merged, ONE_BY_ONE[name], strict=True):
            into.update(more)
        expected.add(name)
    decision = decided(facts(**merged[0]), policy(**merged[1]), spent(**merged[2]))
    order = [g.gate for g in list_gates()]
    assert gate_names(decision) == sorted(expected, key=order.index)
    rulings = {g.ruling for g in list_gates() if g.gate in expected}
    strictest = "deny" if "deny" in rulings else "hold" if "hold" in rulings else "allow"
    assert decision.ruling == strictest


def test_first_sight_only_warns_however_long_it_was_idle() -> None:
    long = finding(window=msgspec.structs.replace(finding().window, start=NOW - 2000 * HOUR))
    decision = decided(facts(finding=long, history=CaseHistory()))
    assert (decision.step, decision.ruling) == ("notify", "allow")
    assert "first-sight" in gate_names(decision)
    bare = policy(stages=(Stage("act", do=("suspend",), verbs=("stop",)),))
    for seen in (None, NOW):
        decision = decided(facts(finding=long, history=CaseHistory(first_seen=seen)), bare)
        assert (decision.step, decision.ruling) == ("act", "hold")
    seen_before = CaseHistory(first_seen=NOW - timedelta(minutes=15))
    assert acts(decided(facts(finding=long, history=seen_before), bare))


def test_grace_counts_from_the_proof_of_a_notice_and_not_from_the_first_sight() -> None:
    told = NOW - 23 * HOUR
    decision = decided(facts(history=history(first_seen=NOW - 400 * HOUR, notified_at=told)))
    assert (decision.step, decision.ruling) == ("grace", "hold")
    assert decision.next_at == told + 24 * HOUR
    assert acts(decided(facts(history=history(notified_at=NOW - 24 * HOUR))))


def test_a_notice_that_announced_another_verb_is_none_of_this_one() -> None:
    """It named other losses, or none: its owner is told anew, and grace begins then."""
    long_ago = NOW - 25 * HOUR
    before = history(notified_at=long_ago, announced={"notify owner": long_ago})
    decision = decided(facts(history=before))
    assert (decision.step, decision.ruling) == ("notify", "allow")
    announced = {"stop": NOW - 23 * HOUR}
    decision = decided(facts(history=history(notified_at=long_ago, announced=announced)))
    assert (decision.step, decision.next_at) == ("grace", NOW + HOUR)
    announced = {"stop": NOW - 24 * HOUR}
    assert acts(decided(facts(history=history(notified_at=long_ago, announced=announced))))


@pytest.mark.parametrize("verb", ["notify owner", "ask owner"])
def test_after_a_stop_was_announced_no_notice_says_that_nothing_happens(verb: str) -> None:
    """Evidence that weakens for an hour and is back must not make the last message untrue."""
    since = NOW - 25 * HOUR
    weaker = msgspec.structs.replace(facts().recommendation, verb=verb)
    before = history(notified_at=since, announced={"stop": since})
    assert decided(facts(history=before, recommendation=weaker)).step != "notify"
    nothing = history(notified_at=None, announced={})
    assert decided(facts(history=nothing, recommendation=weaker)).step == "notify"


def test_a_notice_of_an_earlier_stretch_is_none_of_this_one() -> None:
    since = finding(window=msgspec.structs.replace(finding().window, start=NOW - 10 * HOUR))
    decision = decided(facts(finding=since))
    assert (decision.step, decision.ruling) == ("notify", "allow")


def test_a_notify_policy_tells_and_goes_no_further() -> None:
    for stages in (policy().stages, policy().stages[:2], policy().stages[:3]):
        only = policy(mode="notify", stages=stages)
        assert decided(facts(history=CaseHistory()), only).step == "notify"
        decision = decided(facts(), only)
        assert decision.ruling == "deny"
        assert "mode" in gate_names(decision)


def test_a_policy_that_observes_does_nothing_and_says_so() -> None:
    decision = decided(facts(history=CaseHistory()), policy(stages=(Stage("observe"),)))
    assert (decision.step, decision.ruling, decision.reasons) == ("observe", "allow", ())


@pytest.mark.parametrize("why", ["trusted", "demoted"])
def test_without_a_back_test_or_after_regret_a_policy_never_leaves_notify(why: str) -> None:
    names = frozenset() if why == "trusted" else frozenset({"idle-notebooks"})
    now = spent(**{why: names})
    assert decided(facts(history=CaseHistory()), given_spent=now).step == "notify"
    decision = decided(facts(), given_spent=now)
    assert (decision.ruling, gate_names(decision)) == ("hold", [why])


@pytest.mark.parametrize("verb", sorted({v.verb for v in read_verbs().values()} | {"evict"}))
@pytest.mark.parametrize("verdict", ["busy", "unknown", "partly idle", "wasteful"])
def test_only_what_is_idle_as_a_whole_is_stopped(verb: str, verdict: str) -> None:
    """One busy GPU of eight, one busy replica of three: the workload is not idle."""
    bold = policy(stages=(Stage("act", verbs=("*",)),))
    decision = decided(facts(finding=finding(verdict=verdict), recommendation=advice(verb)), bold)
    assert not acts(decision)
    assert "verdict" in gate_names(decision)


def test_idle_without_two_witnesses_is_told_and_not_touched() -> None:
    shown = {"actionable": False, "reasons": ["no host witness"], "wanted": WANTED}
    weak = finding(details=shown)
    assert decided(facts(finding=weak, history=CaseHistory())).ruling == "allow"
    decision = decided(facts(finding=weak))
    assert gate_names(decision) == ["evidence"]
    assert "no host witness" in decision.reasons[0].text


def waiter(admitted: bool | None, gpus: float = 8.0) -> Waiter:
    return Waiter("ns", "PyTorchJob", "big", gpus, NOW - HOUR, admitted, "needs 8 on one node")


@pytest.mark.parametrize(
    ("waiting", "acted"),
    [
        (None, False),
        ((), False),
        ((waiter(None),), False),
        ((waiter(False),), False),
        ((waiter(False), waiter(None)), False),
        ((waiter(False), waiter(True)), True),
    ],
)
def test_on_pressure_acts_only_for_somebody_whom_the_gpus_admit(
    waiting: tuple[Waiter, ...] | None, acted: bool
) -> None:
    decision = decided(facts(waiting=waiting), policy(on_pressure=True))
    assert acts(decision) == acted


@pytest.mark.parametrize(
    ("waiting", "removes_node", "acted"),
    [
        ((), False, False),
        ((), None, False),
        (None, False, False),
        ((waiter(False),), False, False),
        ((waiter(True),), None, True),
        (None, True, True),
    ],
)
def test_on_benefit_acts_for_somebody_or_for_a_node_that_goes(
    waiting: tuple[Waiter, ...] | None, removes_node: bool | None, acted: bool
) -> None:
    given = facts(waiting=waiting, removes_node=removes_node)
    assert acts(decided(given, policy(on_benefit=True))) == acted


def test_eight_idle_gpus_on_eight_nodes_do_not_justify_one_pod_that_wants_eight() -> None:
    asked = policy(on_pressure=True)
    victims = [facts(uid=f"u{n}", gpus=1.0, waiting=(waiter(False),)) for n in range(8)]
    decisions = [decided(victim, asked) for victim in victims]
    assert not any(acts(d) for d in decisions)
    assert all("needs 8 on one node" in d.reasons[0].text for d in decisions)


@pytest.mark.parametrize(
    ("kind", "namespace", "changes", "listed"),
    [
        ("Deployment", "team-a", {}, ()),
        ("InferenceService", "team-a", {}, ()),
        ("Notebook", "team-prod", {}, ("Notebook",)),
        ("Notebook", "team-a", {"labels": {"env": "Production"}}, ()),
        ("Notebook", "team-a", {"namespace_labels": {"environment": "prod"}}, ()),
        ("Notebook", "team-a", {"priority_class": "business-critical"}, ()),
        ("Notebook", "team-a", {"priority_class": "system-node-critical"}, ()),
        ("DaemonSet", "team-a", {}, ("*",)),
        ("Pod", "team-a", {}, ("*",)),
        ("Notebook", "kube-system", {}, ("*",)),
        ("Notebook", "team-a-2", {}, ("Job",)),
    ],
)
def test_production_and_what_serves_are_left_alone_unless_named(
    kind: str, namespace: str, changes: dict[str, Any], listed: tuple[str, ...]
) -> None:
    able = policy(allow=Allow(("*",), listed), stages=(Stage("act", verbs=("*",)),))
    made = facts(finding=finding(kind, namespace), **changes)
    assert not acts(decided(made, able))


def test_what_serves_is_stopped_once_it_is_named_and_production_once_it_is_allowed() -> None:
    named = policy(allow=Allow(("*",), ("Deployment",)))
    assert acts(decided(facts(finding=finding("Deployment", "team-a")), named))
    bold = policy(allow=Allow(("*",), ("Deployment",), production=True))
    assert not acts(decided(facts(finding=finding("Deployment", "team-prod")), named))
    assert acts(decided(facts(finding=finding("Deployment", "team-prod")), bold))
    system = facts(finding=finding("Deployment", "team-a"), priority_class="system-x")
    assert not acts(decided(system, bold))


def test_objects_without_a_namespace_need_a_word_of_their_own() -> None:
    node = facts(finding=finding("Node", "", verdict="wasteful"), recommendation=advice("recycle"))
    stages = (Stage("act", verbs=("recycle",)),)
    assert not acts(decided(node, policy(allow=Allow(("*",)), stages=stages)))
    assert acts(decided(node, policy(allow=Allow(cluster_objects=True), stages=stages)))


@pytest.mark.parametrize(
    ("annotations", "next_at"),
    [
        ({"fallow.dev/keep": "true"}, None),
        ({"fallow.dev/keep": "please"}, None),
        ({"karpenter.sh/do-not-disrupt": "true"}, None),
        ({"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}, None),
        ({"fallow.dev/protect": "team-b"}, None),
        ({"fallow.dev/keep-until": "2026-11-20T13:00:00Z"}, NOW + HOUR),
        ({"fallow.dev/keep-until": "2026-11-20T14:00:00+01:00"}, NOW + HOUR),
        ({"fallow.dev/keep-until": "2026-11-20T13:00:00"}, NOW + HOUR),
        ({"fallow.dev/keep-until": "next monday"}, None),
    ],
)
@pytest.mark.parametrize("where", ["annotations", "namespace_annotations"])
def test_what_its_owner_keeps_is_neither_stopped_nor_told_again(
    annotations: dict[str, str], next_at: datetime | None, where: str
) -> None:
    for past in PASTS:
        decision = decided(facts(**{where: annotations}, history=past))
        assert decision.ruling == "hold"
        assert gate_names(decision)[0] == "keep"
    assert decided(facts(**{where: annotations})).next_at == next_at


@pytest.mark.parametrize(
    "annotations",
    [
        {"fallow.dev/keep": "false"},
        {"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"},
        {"fallow.dev/keep-until": "2026-11-20T11:59:59Z"},
        {"fallow.dev/checkpoint-interval": "10m"},
    ],
)
def test_a_keep_that_is_over_or_says_no_keeps_nothing(annotations: dict[str, str]) -> None:
    assert acts(decided(facts(annotations=annotations)))


def test_the_cool_down_doubles_each_time_its_owner_took_it_back() -> None:
    last = NOW - 100 * HOUR
    for times, rest in ((0, 6), (1, 12), (2, 24), (3, 48), (8, 1536), (50, 1536)):
        past = history(last_action_at=last, restored_at=(last,) * times)
        end = last + rest * HOUR
        resting = decided(facts(history=past), now=NOW)
        assert acts(resting) == (end <= NOW), times
        if end > NOW:
            assert resting.next_at == end


def test_the_first_actions_need_approval_and_four_eyes_are_two_different_people() -> None:
    canary = policy(approvals=Approvals("first", 3))
    assert not acts(decided(facts(), canary))
    assert not acts(decided(facts(), canary, spent(acted={"idle-notebooks": 2, "other": 9})))
    assert acts(decided(facts(), canary, spent(acted={"idle-notebooks": 3})))
    assert acts(decided(facts(history=history(approved_by=("ann",))), canary))
    both = policy(approvals=Approvals("always", four_eyes=True))
    for people, enough in (
        ((), False),
        (("ann",), False),
        (("ann", "Ann "), False),
        (("ann", ""), False),
        (("ann", "bob"), True),
    ):
        assert acts(decided(facts(history=history(approved_by=people)), both)) == enough


def test_four_eyes_are_counted_by_the_subject_of_a_sign_in() -> None:
    both = policy(approvals=Approvals("always", four_eyes=True))
    for people, subjects, enough in (
        (("ann@a", "ann.new@a"), ("i 1", "i 1"), False),  # her address changed
        (("team@a", "team@a"), ("i 1", "i 2"), True),  # two people share an address
        (("ann@a", "bob@a"), ("i 1",), False),  # the second row is older than subjects
        (("ann@a", "bob@a"), ("i 1", ""), False),
        (("ann", "bob", "cy@a"), ("", "", "i 1"), True),
        (("ann", "ann@a"), (), False),
    ):
        past = history(approved_by=people, approved_subjects=subjects)
        made = decided(facts(history=past), both)
        assert acts(made) == enough, people
        if subjects and not enough:
            (why,) = (r.text for r in made.reasons if r.gate == "approval")
            assert why.endswith("is not known from their sign-ins")


@pytest.mark.parametrize(
    ("approvals", "people", "text"),
    [
        (Approvals("always"), (), "somebody has to approve each action"),
        (Approvals("first", 3), (), "somebody has to approve its first 3 actions"),
        (
            Approvals("always", four_eyes=True),
            ("Ann",),
            "two different people have to approve each action, ann did",
        ),
    ],
)
def test_a_missing_approval_says_how_many_people_have_to_approve_what(
    approvals: Approvals, people: tuple[str, ...], text: str
) -> None:
    made = decided(facts(history=history(approved_by=people)), policy(approvals=approvals))
    assert [r.text for r in made.reasons if r.gate == "approval"] == [text]


@pytest.mark.parametrize(
    ("annotations", "ends"),
    [
        ({"fallow.dev/keep-until": "next monday"}, "(no time given, so for ever)"),
        ({"fallow.dev/keep-until": "2026-11-20T13:00:00Z"}, "=2026-11-20T13:00:00Z"),
        ({"fallow.dev/keep": "true"}, "fallow.dev/keep=true"),
    ],
)
def test_a_protection_is_for_ever_only_where_its_time_cannot_be_read(
    annotations: dict[str, str], ends: str
) -> None:
    made = decided(facts(annotations=annotations))
    (text,) = (r.text for r in made.reasons if "fallow.dev/" in r.text)
    assert text.endswith(ends)


def test_a_required_snapshot_comes_before_the_act_and_only_when_all_else_allows_it() -> None:
    stages = (*policy().stages[:3], SNAPSHOT, policy().stages[3])
    asked = policy(stages=stages)
    assert (decided(facts(), asked).step, decided(facts(), asked).ruling) == ("snapshot", "allow")
    for taken, step in (
        (NOW, "act"),
        (NOW - SNAPSHOT_AGE, "act"),
        (NOW - SNAPSHOT_AGE - timedelta(seconds=1), "snapshot"),
    ):
        assert decided(facts(history=history(snapshot_at=taken)), asked).step == step
    held = decided(facts(), asked, spent(concurrent=2))
    assert (held.step, held.ruling) == ("snapshot", "hold")
    acted = history(snapshot_at=NOW - HOUR, last_action_at=NOW - timedelta(minutes=30))
    assert decided(facts(history=acted), asked).step == "snapshot"
    optional = (*stages[:3], Stage("snapshot", parts=("manifest",)), stages[4])
    assert decided(facts(), policy(stages=optional)).step == "act"


def test_a_case_is_held_until_the_last_of_the_moments_that_free_it() -> None:
    nightly = Blackout("day", window=RecurringWindow("0 9 * * *", 8 * HOUR))
    young = facts(created_at=NOW)
    decision = decided(young, policy(blackouts=(nightly,), min_age=2 * HOUR))
    assert decision.ruling == "hold"
    assert decision.next_at == datetime.fromisoformat("2026-11-20T17:00:00+00:00")
    stuck = decided(young, policy(blackouts=(nightly,), approvals=Approvals("always")))
    assert stuck.next_at is None


def test_all_reasons_are_told_and_not_only_the_first() -> None:
    bad = facts(coverage=0.5, skew_s=99.0, owner=None, vetoes=("a", "b"), uid=None)
    names = gate_names(decided(bad, policy(allow=Allow()), spent(frozen="breaker")))
    assert names == [
        *("frozen", "coverage", "skew", "owner", "veto", "veto"),
        *("namespace", "identity"),
    ]


def test_the_same_inputs_give_the_same_bytes_also_after_a_round_trip() -> None:
    uses = tuple(
        CountedAction(
            NOW - n * HOUR, "idle-notebooks", ("c", "Notebook", "a", f"w{n}"), Decimal(1), "a", None
        )
        for n in range(5)
    )
    rule, case, before = (
        policy(budgets=(ActionBudget(workloads=PolicyAmount(Decimal(3))),)),
        facts(),
        uses,
    )
    first = msgspec.json.encode(decide(rule, case, spent(uses=before), NOW))
    again = [
        msgspec.json.decode(msgspec.json.encode(part), type=type(part))
        for part in (rule, case, spent(uses=before))
    ]
    told = decide(cast(Policy, again[0]), cast(Facts, again[1]), cast(BudgetUsage, again[2]), NOW)
    assert msgspec.json.encode(told) == first
    assert msgspec.json.decode(first, type=Decision).ruling == "hold"


def test_facts_of_a_later_moment_decide_nothing() -> None:
    assert not acts(decided(facts(at=NOW + timedelta(microseconds=1))))


@pytest.mark.parametrize(
    ("names", "lifted", "is_held"),
    [
        (("ml/keep",), (), True),
        (("ml/keep",), ("ml/keep",), False),
        (("ml/keep",), ("ml/*",), False),
        (("ml/keep",), ("ml/other",), True),
        (("ml/keep", "role=standby"), ("ml/keep",), True),
        (("ml/keep", "role=standby"), ("ml/keep", "role=*"), False),
        (("",), ("*",), True),
    ],
)
def test_a_policy_lifts_only_the_holds_that_it_names(
    names: tuple[str, ...], lifted: tuple[str, ...], is_held: bool
) -> None:
    allow = msgspec.structs.replace(policy().allow, held_by=lifted)
    decision = decided(facts(finding=held_finding(*names)), policy(allow=allow))
    assert ("held" in gate_names(decision)) is is_held
    assert "evidence" not in gate_names(decision)
    assert acts(decision) is not is_held


@pytest.mark.parametrize(
    ("budgets", "held_by", "is_held"),
    [
        (None, (), False),  # the actor asks the cluster
        ((), (), False),
        ((CoveringBudget("ml/keep", 1, 1),), (), False),
        ((CoveringBudget("ml/keep", 1, 2),), (), True),
        ((CoveringBudget("ml/keep", 2, 2),), (), False),
        ((CoveringBudget("ml/keep", 1, 2),), ("ml/keep",), False),
        ((CoveringBudget("ml/keep", None, 1),), ("*",), True),
    ],
)
def test_a_stop_of_more_pods_than_a_stored_budget_allows_is_held(
    budgets: tuple[CoveringBudget, ...] | None, held_by: tuple[str, ...], is_held: bool
) -> None:
    allow = msgspec.structs.replace(policy().allow, held_by=held_by)
    decision = decided(facts(budgets=budgets), policy(allow=allow))
    assert ("held" in gate_names(decision)) is is_held
    assert acts(decision) is not is_held


@pytest.mark.parametrize(("verb", "is_held"), [("stop", True), ("cordon", False)])
def test_a_stop_is_held_where_the_last_poll_of_budgets_failed(verb: str, *, is_held: bool) -> None:
    decision = decided(
        facts(budgets_unread=True, recommendation=advice(verb)),
        policy(allow=msgspec.structs.replace(policy().allow, held_by=("*",))),
    )
    assert ("held" in gate_names(decision)) is is_held


@pytest.mark.parametrize(("names", "stops"), [(("ml/keep",), True), (("ml/keep", ""), False)])
def test_what_no_policy_can_lift_is_only_notified(names: tuple[str, ...], stops: bool) -> None:
    first = recommend(held_finding(*names))[0]
    assert (first.verb == "stop") is stops
    assert "held by PDB ml/keep" in (first.caution or "") or not stops


def test_a_finding_with_another_reason_is_not_only_held() -> None:
    details = {**held_finding("ml/keep").details, "reasons": ["the owner is unknown"]}
    decision = decided(facts(finding=finding(details=details)))
    assert {"evidence", "held"} <= set(gate_names(decision))


def test_a_detail_of_a_finding_is_no_parameter_of_a_stage() -> None:
    said = {"why": "it rests", "restore": True, "max_restarts": 9, "template": True}
    details = {**finding().details, **said}
    parameters = decided(facts(finding=finding(details=details))).parameters
    assert parameters["why"] == "it rests"
    assert parameters.keys().isdisjoint({"restore", "max_restarts", "template", "reasons"})


def test_a_decision_of_before_that_has_all_details_is_the_same_decision() -> None:
    case = facts(finding=finding(details={**finding().details, "why": "it rests", "samples": 9}))
    now = decided(case)
    of_before = msgspec.structs.replace(now, parameters={**case.finding.details, **now.parameters})
    assert of_before != now
    assert drop_details(of_before, case) == drop_details(now, case) == now


def test_what_a_policy_lifts_is_part_of_its_fingerprint() -> None:
    lifts = msgspec.structs.replace(policy().allow, held_by=("ml/keep",))
    assert policy().fingerprint != policy(allow=lifts).fingerprint
