"""Each gate on both sides of each of its limits: the sentence, and the time at which it opens."""

from datetime import timedelta
from decimal import Decimal
from typing import Any

import msgspec
import pytest

from actions.gates import CHECKS
from actions.gates.registry import GateInput, Refusal, get_notice_time
from actions.policy.model import (
    ActionBudget,
    Allow,
    Approvals,
    Blackout,
    PolicyAmount,
    RecurringWindow,
    ReversalLimit,
    Stage,
)
from fallow.action_models import Waiter
from tests.actions.cases import HOUR, NOW, advice, facts, finding, history, policy, spent

S = timedelta(seconds=1)
DAY = 24 * HOUR
SNAPSHOTS = (Stage("act", verbs=("stop",)),)
WANTED_OF = {
    "probability": 0.2, "within": "4h", "exposures": 99, "returns": 2, "own_days": 20,
    "own_returns": 1,
}  # fmt: skip
COUNTED = "2 returns of 99 rests as long and days of its own (20 its own, 1 returns)"
NONE_OF = "0 returns of 9 rests as long and days of its own (20 its own, 1 returns)"
UNKNOWN_UID = "its uid is unknown: a name may be somebody else's by now"
LEAP_DAYS = RecurringWindow("0 0 29 2 *", HOUR)
NIGHTS = RecurringWindow("0 20 * * *", 10 * HOUR)


def wanted(**changes: Any) -> dict[str, Any]:
    return {"finding": finding(details={"wanted": {**WANTED_OF, **changes}})}


def waiter(**changes: Any) -> Waiter:
    return msgspec.structs.replace(Waiter("team-b", "Job", "train", 1.0, NOW, None), **changes)


def stalled(**changes: Any) -> dict[str, Any]:
    return {"finding": finding(kind="stalled_job", verdict="wasteful", **changes)}


NO_CHECKPOINT = "no checkpoint was seen being written (checkpoint_age)"


def saved(checkpoint: Any) -> dict[str, Any]:
    return {**stalled(details={"checkpoint": checkpoint}), "p_checkpoint_age": HOUR}


Case = tuple[str, dict[str, Any], list[str | tuple[str, Any]]]
EVIDENCE: list[Case] = [
    # gate, what differs in facts, policy (p_) and usage (u_); the refusals
    ("verdict", {"finding": finding(verdict="partly idle")},
     ["the verdict is partly idle: only what is idle as a whole is stopped"]),
    ("verdict", {"finding": finding(verdict="wasteful"), "recommendation": advice("shrink")}, []),
    ("verdict", {"finding": finding(verdict="busy"), "recommendation": advice("shrink")},
     ["the verdict is busy"]),
    ("verdict", stalled(details={}),
     ["no checkpoint of the job is known: a stop would lose all of its work"]),
    ("verdict", stalled(details={"checkpoint": {"every_s": 1800, "source": "files"}}), []),
    ("verdict", stalled(details={"checkpoint": "/c"}),
     ["no checkpoint of the job is known: a stop would lose all of its work"]),
    # The waste began 48 hours before NOW, at 12:00 of 18 November.
    ("checkpoint_age", saved({"at": "2026-11-18T11:00:00Z"}),
     []),
    ("checkpoint_age", saved({"at": "2026-11-18T10:59:59Z"}),
     ["its last checkpoint was 1h1s before, checkpoint_age is 1h"]),
    ("checkpoint_age", saved({"at": "2026-11-18T12:00:30Z"}),
     []),
    ("checkpoint_age", saved({"at": "2026-11-18T12:00:31Z"}),
     ["its last checkpoint is of 2026-11-18 12:00:31, after the waste began"]),
    ("checkpoint_age", saved({"at": None}),
     [NO_CHECKPOINT]),
    ("checkpoint_age", saved({"at": "soon"}),
     [NO_CHECKPOINT]),
    ("checkpoint_age", saved(None),
     [NO_CHECKPOINT]),
    ("checkpoint_age", saved("/c"),
     [NO_CHECKPOINT]),
    ("checkpoint_age", stalled(details={}), []),
    ("checkpoint_age", {**stalled(details={}), "p_checkpoint_age": HOUR,
                        "recommendation": advice("shrink")}, []),
    ("checkpoint_age", {"p_checkpoint_age": HOUR},
     [NO_CHECKPOINT]),
    ("evidence", {"finding": finding(evidence="suspected")}, ["the evidence is suspected"]),
    ("evidence", {"finding": finding(details={})},
     ["not enough signals to act: the finding is not actionable"]),
    ("evidence", {"finding": finding(details={"reasons": ["a", "b"]})},
     ["not enough signals to act: a; b"]),
    ("evidence", stalled(details={"actionable": 1}),
     ["not enough signals to act: the finding is not actionable"]),
    ("evidence", {"finding": finding(verdict="wasteful", details={})}, []),
    ("wanted", wanted(probability=0.05), []),
    ("wanted", wanted(probability=0.051),
     [f"wanted again within 4h with a probability of 5.1%, above 5.0%: {COUNTED}"]),
    ("wanted", wanted(returns=0, exposures=9),
     [("whether it is wanted within 4h is unknown: too little history, "
      f"{NONE_OF}; needs 9 without a return for 5.0%")]),
    ("wanted", {**wanted(returns=0, exposures=9), "p_reversals": ReversalLimit(rate=0.0)},
     [("whether it is wanted within 4h is unknown: too little history, "
      f"{NONE_OF}; a rate of 0 proves nothing for 0.0%")]),
    ("wanted", {**wanted(), "recommendation": advice("shrink")}, []),
    ("wanted", {"finding": finding(analyzer="sizing", details={})}, []),
    ("wanted", {"finding": finding(details={})},
     ["whether it is wanted soon is unknown: its hours are not rolled up yet"]),
    ("wanted", {"finding": finding(details={"wanted_asked": False})}, []),
    ("coverage", {"coverage": None}, ["coverage is unknown"]),
    ("coverage", {"coverage": 0.95}, []),
    ("coverage", {"coverage": 0.9499}, ["coverage is 95.0%, below 95%"]),
    ("fresh", {"seen_until": NOW - 60 * S}, []),
    ("fresh", {"seen_until": NOW - 61 * S}, ["the last sample is 1m1s old, older than 1m"]),
    ("fresh", {"seen_until": NOW + 30 * S}, []),
    ("fresh", {"seen_until": NOW + 31 * S}, ["the last sample is 31s in the future"]),
    ("fresh", {"at": NOW + S}, ["the facts are of 2026-11-20 12:00:01, later than now"]),
    ("fresh", {"interval_s": 0.0}, ["an interval of 0 s is none"]),
    ("fresh", {"interval_s": 0.5}, ["the last sample is 30s old, older than 1s"]),
    ("fresh", {"interval_s": float("inf")}, ["an interval of inf s is none"]),
    ("fresh", {"interval_s": None}, ["the last sample or the scrape interval is unknown"]),
    ("skew", {"skew_s": None}, ["how far the sources' clocks differ is unknown"]),
    ("skew", {"skew_s": -30.0}, []),
    ("skew", {"skew_s": -30.5}, ["the sources' clocks differ by 30.5 s, more than 30 s"]),
    ("ready", {"nodes_ready": False}, ["a node is not ready"]),
    ("ready", {"nodes_ready": None}, ["whether nodes are ready: unknown"]),
    ("shared", {"shared": True}, ["devices are shared, or the share is an estimate"]),
    ("shared", {"shared": None}, ["whether devices are shared is unknown"]),
    ("resolved", {"owner_resolved": False}, ["the top owner could not be resolved"]),
    ("resolved", {"owner_resolved": None}, ["the top owner: unknown"]),
]  # fmt: skip
POLICY: list[Case] = [
    ("namespace", {"finding": finding(namespace="prod")},
     ["prod is not in allow.namespaces (team-*)"]),
    ("namespace", {"finding": finding(namespace="prod"), "p_allow": Allow()},
     ["prod is not in allow.namespaces (empty)"]),
    ("namespace", {"finding": finding("Node", "")},
     ["it belongs to no namespace, and allow.cluster_objects is false"]),
    ("namespace", {"finding": finding("Node", ""), "p_allow": Allow(cluster_objects=True)}, []),
    ("kind", {"finding": finding("Job")}, []),
    ("kind", {"finding": finding("Job"), "p_allow": Allow(kinds=("Notebook",))},
     ["Job is not in allow.kinds (Notebook)"]),
    ("kind", {"finding": finding("StatefulSet")},
     ["StatefulSet serves: it has to be named in allow.kinds"]),
    ("kind", {"finding": finding("StatefulSet"), "p_allow": Allow(kinds=("StatefulSet",))}, []),
    ("kind", {"finding": finding("Job", kind="idle_inference")},
     ["Job serves: it has to be named in allow.kinds"]),
    ("production", {"priority_class": "system-node-critical"},
     ["priority class system-node-critical: the cluster cannot do without it",
      ("is production by its labels: priority class system-node-critical"
      " (allow.production is false)")]),
    ("production", {"priority_class": "system-x", "p_allow": Allow(production=True)},
     ["priority class system-x: the cluster cannot do without it"]),
    ("production", {"priority_class": "Team_PROD.1"},
     ["is production by its labels: priority class Team_PROD.1 (allow.production is false)"]),
    ("production", {"priority_class": "Team_PROD.1", "p_allow": Allow(production=True)}, []),
    ("production", {"priority_class": "productive"}, []),
    ("production", {"finding": finding(namespace="Live-1")},
     ["is production by its labels: namespace Live-1 (allow.production is false)"]),
    ("production", {"labels": {"env": "Prod"}},
     ["is production by its labels: label env=Prod (allow.production is false)"]),
    ("production", {"namespace_labels": {"env": "prod"}},
     ["is production by its labels: its namespace's label env=prod (allow.production is false)"]),
    ("verb", {"recommendation": advice("shrink")},
     ["'shrink' is not what the stages allow (stop, suspend)"]),
    ("verb", {"p_stages": (Stage("notify"),)}, ["'stop' is not what the stages allow (empty)"]),
    ("verb", {"recommendation": advice(reversible=False)}, ["'stop' cannot be undone"]),
    ("mode", {"p_mode": "notify"}, ["mode is notify: it only tells"]),
    ("frozen", {"u_frozen": ""}, [""]),
]  # fmt: skip
SURROUNDINGS: list[Case] = [
    ("identity", {"uid": None}, [UNKNOWN_UID]),
    ("identity", {"uid": ""}, [UNKNOWN_UID]),
    ("identity", {"uid": None, "unidentified": "two of it"}, ["its uid is unknown: two of it"]),
    ("identity", {"uid": None, "finding": finding("Node", "")}, []),
    ("age", {"created_at": NOW - HOUR, "p_min_age": HOUR}, []),
    ("age", {"created_at": NOW - HOUR + S, "p_min_age": HOUR},
     [("it is 59m59s old, min_age is 1h", NOW + S)]),
    ("age", {"created_at": NOW + HOUR, "p_min_age": HOUR},
     [("it is 0s old, min_age is 1h", NOW + 2 * HOUR)]),
    ("age", {"created_at": None, "p_min_age": HOUR}, ["its age is unknown"]),
    ("age", {"created_at": None, "p_min_age": timedelta(0)}, []),
    ("benefit", {"recommendation": advice(gpu_hours_per_day=0.0), "usd_per_day": Decimal(0)},
     ["it would free nothing"]),
    ("benefit", {"recommendation": advice(gpu_hours_per_day=0.5), "usd_per_day": None}, []),
    ("benefit", {"recommendation": advice(gpu_hours_per_day=0.0), "usd_per_day": Decimal(1)}, []),
    ("benefit", {"recommendation": advice(gpu_hours_per_day=None), "usd_per_day": None}, []),
    ("benefit", {"p_on_benefit": True, "removes_node": True}, []),
    ("benefit", {"p_on_benefit": True, "removes_node": False},
     ["no waiting workload gains by it: no waiter is admitted, no node goes (on_benefit)"]),
    ("benefit", {"p_on_benefit": True, "removes_node": None},
     ["whether anybody gains is unknown: no waiter is admitted, no node goes (on_benefit)"]),
    ("benefit", {"p_on_benefit": True, "removes_node": False, "waiting": None},
     ["whether anybody gains is unknown: no waiter is admitted, no node goes (on_benefit)"]),
    ("benefit", {"p_on_benefit": True, "removes_node": False,
                 "waiting": (waiter(admitted=False), waiter(admitted=True))}, []),
    ("pressure", {"p_on_pressure": True}, ["no workload waits (on_pressure)"]),
    ("pressure", {"p_on_pressure": True, "waiting": None},
     ["who waits is unknown (on_pressure)"]),
    ("pressure", {"p_on_pressure": True, "waiting": (waiter(), waiter(admitted=True))}, []),
    ("pressure", {"p_on_pressure": True, "waiting": (waiter(), waiter(why="no room"))},
     ["Job/team-b/train: these GPUs would not admit it; Job/team-b/train: no room"]),
    ("pressure", {"waiting": None}, []),
]  # fmt: skip
HISTORY: list[Case] = [
    ("keep", {"history": history(kept_until=NOW)}, []),
    ("keep", {"history": history(kept_until=NOW + S)},
     [("kept until 2026-11-20 12:00 UTC", NOW + S)]),
    ("open", {"history": history(open_action="a1")}, ["action a1 on it has no outcome yet"]),
    ("reverted", {"history": history(contested_until=NOW)}, []),
    ("reverted", {"history": history(contested_until=NOW + S)},
     [("somebody reverted us: left alone until 2026-11-20 12:00 UTC", NOW + S)]),
    ("cool-down", {"p_cool_down": HOUR, "history": history(last_action_at=NOW - HOUR)}, []),
    ("cool-down", {"p_cool_down": HOUR, "history": history(last_action_at=NOW - HOUR + S)},
     [("acted upon at 2026-11-20 11:00 UTC: rests until 2026-11-20 12:00", NOW + S)]),
    ("cool-down",
     {"p_cool_down": HOUR,
      "history": history(last_action_at=NOW - 3 * HOUR, restored_at=(NOW - HOUR,))},
     [("acted upon at 2026-11-20 11:00 UTC, reversed once: rests until 2026-11-20 13:00",
       NOW + HOUR)]),
    ("cool-down", {"p_cool_down": HOUR, "history": history(restored_at=(NOW - DAY,) * 8)},
     [("acted upon at 2026-11-19 12:00 UTC, reversed 8 times: rests until 2026-11-30 04:00",
       NOW + 232 * HOUR)]),
    ("cool-down", {"p_cool_down": HOUR, "history": history(restored_at=(NOW - DAY,) * 9)},
     [("acted upon at 2026-11-19 12:00 UTC, reversed 9 times: rests until 2026-11-30 04:00",
       NOW + 232 * HOUR)]),
    ("trusted", {"u_trusted": frozenset()},
     ["no back-test of this text of the policy proved reversals within 5.0%"]),
    ("trusted", {"u_trusted": frozenset(), "u_unproved": {"idle-notebooks": "12 of 30"}},
     ["12 of 30"]),
    ("demoted", {"u_demoted": frozenset({"idle-notebooks"})},
     ["owners took back more than 5.0% of what it stopped"]),
    ("demoted", {"u_demoted": frozenset({"another"})}, []),
    ("window", {"p_act_window": NIGHTS},
     [("it acts only from '0 20 * * *' (UTC) on: 2026-11-20 20:00 UTC", NOW + 8 * HOUR)]),
    ("window", {"p_act_window": NIGHTS, "now": NOW + 8 * HOUR}, []),
    ("window", {"p_act_window": LEAP_DAYS},
     ["it acts only from '0 0 29 2 *' (UTC) on: not within a year"]),
    ("blackout", {"p_blackouts": (Blackout("release", NOW - HOUR, NOW),)}, []),
    ("blackout", {"p_blackouts": (Blackout("release", NOW, NOW + HOUR),)},
     [("release", NOW + HOUR)]),
    ("concurrent", {"u_concurrent": 1, "p_concurrent": 2}, []),
    ("concurrent", {"u_concurrent": 2, "p_concurrent": 2},
     ["2 actions are under way, concurrent is 2"]),
    ("budget", {"p_budgets": (ActionBudget(gpus=PolicyAmount(Decimal(2)), per=DAY),)}, []),
    ("budget", {"p_budgets": (ActionBudget(gpus=PolicyAmount(Decimal(1)), per=DAY),)},
     ["gpus 1 per 1d: 0 of 1 taken, 2 more asked"]),
    ("approval", {"p_approvals": Approvals("none")}, []),
    ("approval", {"p_approvals": Approvals("first", 2), "u_acted": {"idle-notebooks": 1}},
     ["somebody has to approve its first 2 actions"]),
    ("approval", {"p_approvals": Approvals("first", 2), "u_acted": {"idle-notebooks": 2}}, []),
    ("approval", {"p_approvals": Approvals("first", 1), "u_acted": {"another": 9}},
     ["somebody has to approve its first 1 actions"]),
    ("approval", {"p_approvals": Approvals("always"), "u_acted": {"idle-notebooks": 99}},
     ["somebody has to approve each action"]),
    ("first-sight", {"history": history(first_seen=NOW - S)}, []),
    ("first-sight", {"history": history(first_seen=NOW)},
     ["seen for the first time: first sight only warns"]),
    ("notice", {"history": history(notified_at=None)},
     ["no notice of it is proved to be delivered"]),
    ("notice", {"history": history(notified_at=None), "p_stages": SNAPSHOTS}, []),
    ("grace", {"history": history(notified_at=NOW - DAY)}, []),
    ("grace", {"history": history(notified_at=NOW - DAY + S)},
     [("its owner was notified at 2026-11-19 12:00, grace is 1d", NOW + S)]),
    ("grace", {"history": history(notified_at=NOW), "p_stages": SNAPSHOTS}, []),
]  # fmt: skip


def refuse(gate: str, changes: dict[str, Any]) -> list[Refusal]:
    """Return the refusals of one gate, where nothing but the changes keeps it shut."""
    rest = {k: v for k, v in changes.items() if k[:2] not in {"p_", "u_"} and k != "now"}
    of_policy = {k[2:]: v for k, v in changes.items() if k.startswith("p_")}
    of_usage = {k[2:]: v for k, v in changes.items() if k.startswith("u_")}
    made = GateInput(policy(**of_policy), facts(**rest), spent(**of_usage), changes.get("now", NOW))
    return list(CHECKS[gate](made))


CASES = [
    pytest.param(*case, id=f"{case[0]}-{number}")
    for number, case in enumerate([*EVIDENCE, *POLICY, *SURROUNDINGS, *HISTORY])
]


@pytest.mark.parametrize(("gate", "changes", "expected"), CASES)
def test_a_gate_refuses_on_one_side_of_its_limit_and_says_until_when(
    gate: str, changes: dict[str, Any], expected: list[str | tuple[str, Any]]
) -> None:
    pairs = [(e, None) if isinstance(e, str) else e for e in expected]
    assert [(r.text, r.until) for r in refuse(gate, changes)] == pairs


@pytest.mark.parametrize(
    ("verb", "announced", "notified", "expected"),
    [
        ("stop", {}, NOW - HOUR, NOW - HOUR),
        ("stop", {}, None, None),
        ("stop", {}, NOW - 48 * HOUR, NOW - 48 * HOUR),
        ("stop", {}, NOW - 48 * HOUR - S, None),
        ("stop", {"stop": NOW - 2 * HOUR}, NOW - HOUR, NOW - 2 * HOUR),
        ("stop", {"notify owner": NOW - 2 * HOUR}, NOW - HOUR, None),
        ("notify owner", {"stop": NOW - 2 * HOUR}, NOW - HOUR, NOW - 2 * HOUR),
        ("ask owner", {"stop": NOW - 2 * HOUR}, NOW - HOUR, NOW - 2 * HOUR),
        ("ask owner", {"stop": NOW - 49 * HOUR}, NOW - HOUR, None),
    ],
)
def test_a_notice_counts_for_its_stretch_and_for_the_verb_it_announced(
    verb: str, announced: dict[str, Any], notified: Any, expected: Any
) -> None:
    past = history(notified_at=notified, announced=announced)
    made = facts(recommendation=advice(verb), history=past)
    assert get_notice_time(made) == expected
