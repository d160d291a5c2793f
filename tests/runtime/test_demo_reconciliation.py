"""The line that reconciles planted, found and idle GPU-hours: no hour of it counts twice."""

from datetime import UTC, datetime, timedelta

from dashboards.waste_report import PlantedScore
from fallow.models import Finding, Recommendation, Subject
from fallow.window import Window
from runtime.experiments.demo import split_idle_hours

END = datetime(2026, 11, 16, tzinfo=UTC)


def build_finding(analyzer: str, idle_gpu_hours: float | None) -> Finding:
    """Return a finding about ten idle GPU-hours; without advice where it claims no hours."""
    advice = Recommendation("do", "it", "because", True, marginal_idle_gpu_hours=idle_gpu_hours)
    return Finding(
        id=f"{analyzer:0>12}",
        analyzer=analyzer,
        kind="k",
        subject=Subject("demo", "team-a", "Job", "w"),
        window=Window(END - timedelta(hours=10), END),
        verdict="idle",
        evidence="confirmed",
        confidence=1.0,
        gpu_hours=10.0,
        usd=None,
        details={},
        recommendations=() if idle_gpu_hours is None else (advice,),
    )


def test_hours_of_a_vetoed_finding_that_another_one_claims_count_once() -> None:
    # Ten hours are idle. A quota claims eight; two are left to the finding that has no advice.
    findings = [build_finding("idle", None), build_finding("quota", 8.0)]
    in_idle, in_others = split_idle_hours(findings, 2.0)
    assert (in_idle, in_others) == (2.0, 8.0)
    score = PlantedScore(
        planted_gpu_hours=10.0,
        found_gpu_hours=10.0,
        planted_usd=None,
        found_usd=None,
        precision=1.0,
        recall=1.0,
        false_alarms=0,
        missed_gpu_hours=0.0,
        extra_gpu_hours=0.0,
        ledger_idle_gpu_hours=10.0,
        not_idle_gpu_hours=10.0 - in_idle,
        others_gpu_hours=in_others,
    )
    assert score.unclaimed_gpu_hours == 0.0
    assert "+ no finding 0.0 = idle 10.0" in score.reconciled


def test_advised_findings_have_what_their_recommendations_claim() -> None:
    findings = [build_finding("idle", 6.0), build_finding("idle", 1.5), build_finding("quota", 2.0)]
    assert split_idle_hours(findings, 0.25) == (7.75, 2.0)
