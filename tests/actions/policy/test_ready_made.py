"""The policies that come with Fallow: they are what they say, and none can act as it stands."""

from pathlib import Path

import msgspec
import pytest

from actions.decide import decide
from actions.planning import plan
from actions.policy.model import Policy
from actions.policy.reading import read
from fallow.acting import Facts, History, Waiter
from fallow.window import Window
from tests.actions.cases import HOUR, NOW, advice, facts, finding, spent

FOLDER = Path(__file__).resolve().parents[3] / "policies"
NIGHT = NOW.replace(hour=23)
NAMES = [
    "idle-inference",
    "idle-notebooks",
    "observe-all",
    "over-quota-idle",
    "rebalance-quota",
    "recycle-sick-nodes",
    "right-size-memory",
    "spot-batch",
]
CASES = {
    # policy: analyzer, kind of finding, kind of workload, namespace, verdict, verb
    "idle-inference": ("idle", "idle_inference", "InferenceService", "team-a", "idle", "stop"),
    "idle-notebooks": ("idle", "idle_notebook", "Notebook", "team-a", "idle", "stop"),
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
    return {policy.name: policy for policy in read([FOLDER])}


def test_they_are_the_eight_and_each_is_in_the_file_of_its_name(
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
        history=History(
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
