"""What is recommended for which finding: reversible verbs, never a deletion."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import msgspec
import pytest

from actions.recommend import add_recommendations, explain_protection, read_verbs, recommend
from fallow.models import Claim, Finding, Recommendation, Saving, State, Subject
from fallow.window import Window

START = datetime(2026, 11, 1, tzinfo=UTC)


def finding(kind: str = "Notebook", namespace: str = "ns", **changes: Any) -> Finding:
    made = Finding(
        id="0" * 12,
        analyzer="idle",
        kind="idle_workload",
        subject=Subject("c", namespace, kind, "w"),
        window=Window(START, START + timedelta(hours=12)),
        verdict="idle",
        evidence="confirmed",
        confidence=1.0,
        gpu_hours=24.0,
        usd=Decimal("48.00"),
        details={"actionable": True, "reasons": []},
    )
    return msgspec.structs.replace(made, **changes)


def verbs_of(found: Finding) -> list[str]:
    return [advice.verb for advice in recommend(found)]


def test_a_suspicion_is_a_question_whatever_else_is_said() -> None:
    assert verbs_of(finding(evidence="suspected")) == ["ask owner"]


def test_a_confirmed_finding_that_may_not_be_acted_upon_is_told() -> None:
    (recommendation,) = recommend(
        finding(details={"actionable": False, "reasons": ["no host witness"]})
    )
    assert (recommendation.verb, recommendation.caution) == ("notify owner", "no host witness")


def test_partly_idle_ranks_ask_for_fewer_and_are_never_stopped() -> None:
    details = {"actionable": True, "devices_idle": 3, "devices_held": 8}
    (advice,) = recommend(finding("PyTorchJob", verdict="partly idle", details=details))
    assert advice.verb == "request fewer GPUs"
    assert "3 of 8" in advice.why


@pytest.mark.parametrize("kind", sorted(read_verbs()))
def test_every_kind_is_stopped_by_its_own_handle_and_can_be_undone(kind: str) -> None:
    stop, tell = recommend(finding(kind))
    assert stop.reversible
    assert stop.undo
    assert tell.verb == "notify owner"
    answer = f"{stop.verb} {stop.why}".lower()
    assert "delete " not in answer.replace("delete /hub/api", "")


def test_kserve_is_stopped_by_its_annotation_and_lws_as_a_whole() -> None:
    assert "serving.kserve.io/stop" in recommend(finding("InferenceService"))[0].why
    assert "minReplicas" not in recommend(finding("InferenceService"))[0].why
    assert "replicas" in recommend(finding("LeaderWorkerSet"))[0].why


def test_a_job_is_warned_about_kueue() -> None:
    caution = recommend(finding("Job"))[0].caution
    assert caution is not None
    assert "spec.active" in caution


@pytest.mark.parametrize(
    ("kind", "namespace"),
    [("Pod", "ns"), ("DaemonSet", "ns"), ("Workflow", "ns"), ("Job", "kube-system")],
)
def test_what_is_protected_is_never_stopped(kind: str, namespace: str) -> None:
    assert explain_protection(kind, namespace)
    (recommendation,) = recommend(finding(kind, namespace))
    assert recommendation.verb == "notify owner"
    assert recommendation.caution is not None
    assert recommendation.caution.startswith("Fallow never stops it")


def test_an_unknown_kind_is_told_and_not_touched() -> None:
    (recommendation,) = recommend(finding("Gizmo"))
    assert recommendation.verb == "notify owner"


@pytest.mark.parametrize("verdict", ["busy", "unknown"])
def test_without_an_idle_verdict_nothing_is_recommended(verdict: str) -> None:
    assert recommend(finding(verdict=verdict)) == ()


def test_savings_a_day_are_the_findings_own_rate() -> None:
    stop = recommend(finding())[0]
    assert stop.gpu_hours_per_day == 48.0
    assert stop.usd_per_day == Decimal("96.00")
    assert recommend(finding(usd=None))[0].usd_per_day is None


def test_advised_findings_are_otherwise_the_same() -> None:
    found = finding()
    (made,) = add_recommendations([found])
    assert made.recommendations == recommend(found)
    assert msgspec.structs.replace(made, recommendations=()) == found


def test_what_an_analyzer_recommends_stands() -> None:
    own = Recommendation("pack", "pool", "room", reversible=True)
    (made,) = add_recommendations([finding(verdict="wasteful", recommendations=(own,))])
    assert made.recommendations == (own,)


@pytest.mark.parametrize("evidence", ["confirmed", "suspected"])
def test_idle_advice_claims_the_workload_s_idle_hours(evidence: str) -> None:
    for advice in recommend(finding(evidence=evidence)):
        (claim,) = advice.claims
        assert (claim.workload, claim.state, claim.gpu_hours) == ("w", "idle", 24.0)
        assert claim.usd == Decimal("48.00")


def stalled(**details: Any) -> Finding:
    answer = {"actionable": True, "how": "spin", "checkpoint": {"every_s": 1800}, "why": "all spin"}
    made = finding("PyTorchJob", verdict="wasteful", details={**answer, **details})
    return msgspec.structs.replace(made, analyzer="stalled", kind="stalled_job")


def test_a_stalled_job_is_stopped_only_where_a_checkpoint_is_known() -> None:
    assert verbs_of(stalled()) == ["suspend", "notify owner"]
    assert verbs_of(stalled(actionable=False)) == ["notify owner"]
    (recommendation,) = recommend(stalled(checkpoint=None))
    assert recommendation.verb == "notify owner"
    assert "no checkpoint of it is known" in (recommendation.caution or "")
    assert verbs_of(msgspec.structs.replace(stalled(), evidence="suspected")) == ["ask owner"]


def test_a_stalled_jobs_hours_are_claimed_where_the_ledger_has_them() -> None:
    made = stalled()
    hours = {"low": made.gpu_hours - 1, "productive": 1.0}
    claims = recommend(stalled(hours_of=hours))[0].claims
    assert {c.state: c.gpu_hours for c in claims} == hours
    assert sum(c.usd or 0 for c in claims) == made.usd
    (rests,) = recommend(stalled(how="rest", hours_of={"idle": made.gpu_hours}))[0].claims
    assert (rests.state, rests.gpu_hours, rests.usd) == ("idle", made.gpu_hours, made.usd)


@pytest.mark.parametrize(
    ("states", "saving", "is_bound"),
    [
        (("low", "productive"), "capacity", True),
        (("low", "idle"), "capacity", False),
        (("low",), "cash", False),
        ((), "capacity", False),
    ],
    ids=["in use", "partly wasted", "cash", "nothing claimed"],
)
def test_advice_about_hours_in_use_alone_is_a_bound(
    states: tuple[State, ...], saving: Saving, is_bound: bool
) -> None:
    claims = tuple(Claim("c", "ns", "Job", "job", None, state, 1.0) for state in states)
    advice = Recommendation("resize", "Job/ns/job", "why", True, saving=saving, claims=claims)
    assert advice.is_bound is is_bound
