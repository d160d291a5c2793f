"""The policies that come with Fallow: they are what they say, and none can act as it stands."""

from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import given

from actions.decide import decide
from actions.notices.notice_text import build_notice
from actions.plan import plan
from actions.policy.budgets import BudgetUsage, find_excesses
from actions.policy.matching import explain_mismatch
from actions.policy.model import Policy
from actions.policy.parser import read_policies
from actions.policy.reversals import count_needed_stops
from fallow.action_models import CaseHistory, Facts, Waiter
from fallow.errors import FallowError
from fallow.window import Window
from tests.actions.cases import HOUR, NOW, advice, facts, finding, spent

FOLDER = Path(__file__).resolve().parents[3] / "policies"
NIGHT = NOW.replace(hour=23)
MINUTE = timedelta(minutes=1)
NAMES = [
    "idle-inference",
    "idle-notebooks",
    "idle-ray-clusters",
    "night-stops",
    "observe-all",
    "over-quota-idle",
    "rebalance-quota",
    "recycle-sick-nodes",
    "restart-stalled-jobs",
    "resume-suspended-jobs",
    "right-size-memory",
    "spot-batch",
    "stalled-jobs",
]
CASES = {
    # policy: analyzer, kind of finding, kind of workload, namespace, verdict, verb
    "idle-inference": ("idle", "idle_inference", "InferenceService", "team-a", "idle", "stop"),
    "idle-notebooks": ("idle", "idle_notebook", "Notebook", "team-a", "idle", "stop"),
    "idle-ray-clusters": ("idle", "idle_job", "RayCluster", "team-a", "idle", "suspend"),
    "night-stops": ("idle", "idle_notebook", "Notebook", "team-a", "idle", "stop"),
    "over-quota-idle": ("idle", "idle_job", "PyTorchJob", "team-a", "idle", "suspend"),
    "rebalance-quota": ("quota", "stranded_quota", "Quota", "", "wasteful", "rebalance-quota"),
    "recycle-sick-nodes": ("reliability", "sick_node", "Node", "", "wasteful", "recycle node"),
    "right-size-memory": (
        *("sizing", "memory_hog", "Deployment", "team-a", "wasteful"),
        "ask for less memory per GPU",
    ),
    "spot-batch": ("spot", "spot_job", "Job", "team-a", "wasteful", "run on spot"),
}


@pytest.fixture(scope="module")
def policies() -> dict[str, Policy]:
    return {policy.name: policy for policy in read_policies([FOLDER])}


def test_they_are_the_thirteen_and_each_is_in_the_file_of_its_name(
    policies: dict[str, Policy],
) -> None:
    assert sorted(policies) == NAMES
    for name, policy in policies.items():
        assert Path(policy.source.rpartition(":")[0]).stem == name
        assert policy.description
        assert f"({name}.yaml)" in (FOLDER / "README.md").read_text(encoding="utf-8")


def case(name: str) -> Facts:
    """Return a case of a policy about which there is no doubt at all, and everybody agreed."""
    analyzer, kind, workload, namespace, verdict, verb = CASES[name]
    found = finding(workload, namespace, analyzer=analyzer, kind=kind, verdict=verdict)
    since = msgspec.structs.replace(found, window=Window(NIGHT - 160 * HOUR, NIGHT))
    return facts(
        at=NIGHT,
        seen_until=NIGHT,
        finding=since,
        recommendation=advice(verb),
        created_at=NIGHT - 3000 * HOUR,
        over_quota=True,
        waiting=(Waiter("b", "Job", "waits", 2.0, NIGHT - HOUR, admitted=True),),
        history=CaseHistory(
            first_seen=NIGHT - 90 * HOUR,
            notified_at=NIGHT - 80 * HOUR,
            approved_by=("ann",),
            snapshot_at=NIGHT,
        ),
    )


@pytest.mark.parametrize("name", sorted(CASES))
def test_none_acts_until_an_admin_says_where_and_its_back_test_passed(
    policies: dict[str, Policy], name: str
) -> None:
    shipped, trusted = policies[name], spent(trusted=frozenset({name}))
    refused = decide(shipped, case(name), trusted, NIGHT)
    assert (refused.ruling, {r.gate for r in refused.reasons}) == ("deny", {"namespace"})
    where = msgspec.structs.replace(
        shipped.allow,
        namespaces=("team-*",),
        cluster_objects=not case(name).finding.subject.namespace,
    )
    opened = msgspec.structs.replace(shipped, allow=where)
    assert opened.fingerprint != shipped.fingerprint
    held = decide(opened, case(name), spent(trusted=frozenset()), NIGHT)
    assert (held.ruling, {r.gate for r in held.reasons}) == ("hold", {"trusted"})
    acted = decide(opened, case(name), trusted, NIGHT)
    assert (acted.step, acted.ruling) == ("act", "allow"), acted.reasons


def stalled(verb: str, evidence: str, checkpoint: Any = None) -> Facts:
    """Return a job that hangs, about which there is no other doubt."""
    about: dict[str, Any] = {
        "analyzer": "stalled", "kind": "stalled_job", "verdict": "wasteful", "evidence": evidence,
        "window": Window(NIGHT - 90 * MINUTE, NIGHT),
        "details": {"actionable": True, "checkpoint": checkpoint},
    }  # fmt: skip
    return facts(
        at=NIGHT,
        seen_until=NIGHT,
        finding=finding("PyTorchJob", **about),
        recommendation=advice(verb),
        created_at=NIGHT - 3000 * HOUR,
        history=CaseHistory(
            first_seen=NIGHT - 80 * MINUTE,
            notified_at=NIGHT - 70 * MINUTE,
            approved_by=("ann",),
            snapshot_at=NIGHT,
        ),
    )


@pytest.mark.parametrize(
    ("verb", "checkpoint", "acts"),
    [
        ("suspend", {"every_s": 1800, "source": "annotation"}, True),
        ("suspend", None, False),
        ("notify owner", None, False),
    ],
)
def test_a_job_that_hangs_is_suspended_only_where_a_checkpoint_is_known(
    policies: dict[str, Policy], verb: str, checkpoint: Any, *, acts: bool
) -> None:
    shipped, trusted = policies["stalled-jobs"], spent(trusted=frozenset({"stalled-jobs"}))
    open_ = msgspec.structs.replace(
        shipped, allow=msgspec.structs.replace(shipped.allow, namespaces=("team-*",))
    )
    case_ = stalled(verb, "confirmed", checkpoint)
    made = decide(open_, case_, trusted, NIGHT)
    assert ((made.step, made.ruling) == ("act", "allow")) is acts, made.reasons
    assert decide(shipped, case_, trusted, NIGHT).ruling != "allow" or verb == "notify owner"
    if not acts and verb == "suspend":
        assert any("no checkpoint" in r.text for r in made.reasons)


SAVED = {"every_s": 1800, "source": "writes", "at": f"{NIGHT - 120 * MINUTE:%Y-%m-%dT%H:%M:%SZ}"}


@pytest.mark.parametrize(
    ("checkpoint", "gates"),
    [
        (SAVED, set()),
        (SAVED | {"at": f"{NIGHT - 211 * MINUTE:%Y-%m-%dT%H:%M:%SZ}"}, {"checkpoint_age"}),
        (SAVED | {"at": None}, {"checkpoint_age"}),
        ({"every_s": 1800, "source": "annotation"}, {"checkpoint_age"}),
    ],
)
def test_a_restart_is_a_notice_until_an_admin_enforces_it_and_needs_a_checkpoint_that_was_seen(
    policies: dict[str, Policy], checkpoint: dict[str, Any], gates: set[str]
) -> None:
    shipped = policies["restart-stalled-jobs"]
    trusted = spent(trusted=frozenset({shipped.name}))
    case_ = stalled("suspend", "confirmed", checkpoint)
    notified = decide(shipped, case_, trusted, NIGHT)
    assert (notified.verb, notified.ruling) == ("restart", "deny")
    assert {r.gate for r in notified.reasons} == {"mode", "namespace", *gates}
    opened = msgspec.structs.replace(
        shipped, mode="enforce",
        allow=msgspec.structs.replace(shipped.allow, namespaces=("team-*",)),
    )  # fmt: skip
    made = decide(opened, case_, trusted, NIGHT)
    assert {r.gate for r in made.reasons} == gates
    assert ((made.step, made.ruling, made.verb) == ("act", "allow", "restart")) is (not gates)


def test_a_restart_without_a_limit_of_lost_work_is_no_policy(tmp_path: Path) -> None:
    text = (FOLDER / "restart-stalled-jobs.yaml").read_text(encoding="utf-8")
    file = tmp_path / "p.yaml"
    file.write_text(text.replace("checkpoint_age: 2h\n", ""), encoding="utf-8")
    with pytest.raises(FallowError, match=r"stages: restart needs checkpoint_age"):
        read_policies([file])


def test_a_restart_is_announced_as_what_cannot_be_undone(policies: dict[str, Policy]) -> None:
    shipped = msgspec.structs.replace(policies["restart-stalled-jobs"], mode="enforce")
    case_ = stalled("suspend", "confirmed", SAVED)
    text = build_notice(decide(shipped, case_, spent(), NIGHT), case_, shipped).text
    assert "restart, 30m from now" in text
    assert "it cannot be undone" in text
    assert "What is lost: progress since the last checkpoint" in text


@pytest.mark.parametrize(("evidence", "about"), [("confirmed", True), ("suspected", False)])
def test_only_a_hang_that_is_confirmed_is_told(
    policies: dict[str, Policy], evidence: str, about: bool
) -> None:
    case_ = stalled("notify owner", evidence)
    assert (explain_mismatch(policies["stalled-jobs"], case_) == ()) is about


@pytest.mark.parametrize(
    ("name", "hours"),
    [("idle-notebooks", 24), ("idle-inference", 24), ("idle-ray-clusters", 4), ("night-stops", 4)],
)
def test_what_is_idle_longest_has_to_be_idle_for_so_long_and_its_owner_has_as_long_to_keep_it(
    policies: dict[str, Policy], name: str, hours: int
) -> None:
    shipped, long = policies[name], case(name)
    assert shipped.stage("grace").wait == hours * HOUR  # type: ignore[union-attr]
    for lasted, about in ((hours * HOUR, True), (hours * HOUR - MINUTE, False)):
        finding = msgspec.structs.replace(long.finding, window=Window(NIGHT - lasted, NIGHT))
        seen = msgspec.structs.replace(long, finding=finding)
        assert (explain_mismatch(shipped, seen) == ()) is about


@pytest.mark.parametrize(("hour", "acts"), [(19, False), (20, True), (4, True), (5, False)])
def test_night_stops_act_at_night_only(policies: dict[str, Policy], hour: int, acts: bool) -> None:
    night = policies["night-stops"]
    allow = msgspec.structs.replace(night.allow, namespaces=("team-*",))
    opened = msgspec.structs.replace(night, allow=allow)
    now = NIGHT.replace(hour=hour)
    seen = msgspec.structs.replace(
        case("night-stops"),
        at=now,
        seen_until=now,
        history=msgspec.structs.replace(case("night-stops").history, snapshot_at=now),
    )
    made = decide(opened, seen, spent(trusted=frozenset({"night-stops"})), now)
    assert (made.ruling, {r.gate for r in made.reasons}) == (
        ("allow", set()) if acts else ("hold", {"window"})
    )
    assert acts or made.next_at == NIGHT.replace(hour=20)


def sized(facts: Facts, gpus: int, others: int) -> Facts:
    """Return a case of as many GPUs at a dollar an hour, its node one of several in its pool."""
    return msgspec.structs.replace(
        facts, gpus=float(gpus), usd_per_day=Decimal(24 * gpus), pool_others=others
    )


def fleet(nodes: int, size: int, name: str) -> BudgetUsage:
    """Return a fleet in which everybody trusts the policy, a workload on each node."""
    return spent(
        trusted=frozenset({name}),
        fleet_gpus=float(nodes * size),
        fleet_workloads=nodes,
        fleet_owners=min(nodes, 20),
        fleet_usd_per_hour=Decimal(nodes * size),
        largest_node_gpus=float(size),
        largest_node_usd_per_hour=Decimal(size),
    )


FLEETS = st.tuples(st.integers(1, 1250), st.sampled_from([1, 2, 4, 8])).filter(
    lambda sizes: 8 <= sizes[0] * sizes[1] <= 10_000
)


@pytest.mark.parametrize("name", sorted(CASES))
@given(sizes=FLEETS)
def test_its_budgets_let_every_policy_act_in_fleets_of_8_to_10_000_gpus(
    policies: dict[str, Policy], name: str, sizes: tuple[int, int]
) -> None:
    nodes, size = sizes
    shipped, now = policies[name], fleet(nodes, size, name)
    case_ = sized(case(name), size, nodes - 1)
    allow = msgspec.structs.replace(
        shipped.allow,
        namespaces=("team-*",),
        cluster_objects=not case_.finding.subject.namespace,
    )
    opened = msgspec.structs.replace(shipped, allow=allow)
    made = decide(opened, case_, now, NIGHT)
    if name == "recycle-sick-nodes" and nodes == 1:
        (why,) = made.reasons
        assert "it is the last schedulable node of its pool" in why.text
        return
    assert (made.step, made.ruling) == ("act", "allow"), made.reasons
    assert not find_excesses(opened, {"c": 1}, now)


# What a back-test of 14 days of a synthetic fleet of 128 GPUs (`fallow demo --gpus 128 --days 14`)
# stopped: 85 notebooks, 9 Ray clusters, 3 servers; in 60 days 364, 38 and 12.
PROVED_BY = {
    "idle-inference": 11,
    "idle-ray-clusters": 19,
    "rebalance-quota": 7,
    "recycle-sick-nodes": 7,
}


def test_a_rate_is_proved_by_as_many_stops_as_128_gpus_see_in_60_days(
    policies: dict[str, Policy],
) -> None:
    for name in CASES:
        needed = PROVED_BY.get(name, 29)
        assert count_needed_stops(0, policies[name].reversals.rate) == needed, name
        if needed < 11:
            assert policies[name].approvals.when == "always"


def test_watching_everything_touches_nothing(policies: dict[str, Policy]) -> None:
    for name in CASES:
        decision = decide(policies["observe-all"], case(name), spent(), NIGHT)
        assert (decision.step, decision.ruling) == ("observe", "allow")


@pytest.mark.parametrize(("trusted", "approved"), [(True, True), (True, False), (False, True)])
def test_watching_everything_hides_nothing_that_another_policy_does_or_holds(
    policies: dict[str, Policy], *, trusted: bool, approved: bool
) -> None:
    shipped = policies["idle-notebooks"]
    allow = msgspec.structs.replace(shipped.allow, namespaces=("team-*",))
    opened = msgspec.structs.replace(shipped, allow=allow)
    given = case("idle-notebooks")
    if not approved:
        silent = msgspec.structs.replace(given.history, approved_by=())
        given = msgspec.structs.replace(given, history=silent)
    now = spent(trusted=frozenset({opened.name}) if trusted else frozenset())
    for rules in ((opened, policies["observe-all"]), (policies["observe-all"], opened)):
        (decision,) = plan(rules, [given], now, NIGHT).decisions
        assert decision.policy == "idle-notebooks"
        assert decision.ruling == ("allow" if trusted and approved else "hold")
    (watched,) = plan(tuple(policies.values()), [given], now, NIGHT).decisions
    assert (watched.policy, watched.step) == ("observe-all", "observe")
