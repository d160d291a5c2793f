"""Build the findings of jobs that scale badly: hours, dollars, evidence, remedy."""

from datetime import UTC, timedelta
from typing import Any

from analyzers.scaling.families import STEPS, JobThroughput
from analyzers.scaling.rows import JobPace
from analyzers.work import WorkloadCosts, compute_per_day, compute_share
from analyzers.workload_rows import Owner
from fallow.models import Evidence, Finding, FindingKey, Recommendation, State, Subject
from fallow.settings.service_levels import ScalingSettings
from fallow.window import Window

ANALYZER = "scaling"
WORKED: tuple[State, ...] = ("low", "productive")
HOUR = timedelta(hours=1)


def build_finding(
    owner: Owner,
    paces: list[JobThroughput],
    money: WorkloadCosts,
    settings: ScalingSettings,
    window: Window,
) -> Finding | None:
    """Return the finding of a job that scales badly; None = the ledger has no hours of it."""
    total = money.total(owner, WORKED)
    if total is None or total.gpu_hours <= 0:
        return None
    lost = sum(p.row.gpus * p.row.hours * (1 - p.efficiency) for p in paces)
    share = min(lost / total.gpu_hours, 1 - min(p.efficiency for p in paces))
    usd = None if total.usd is None else compute_share(total.usd, share)
    worst = min(paces, key=lambda p: p.efficiency)
    row, subject = worst.row, build_subject(worst.row)
    evidence = _judge_evidence(paces, settings)
    why = (
        f"each of its {row.gpus} GPUs does {worst.efficiency:.0%} of what one does on "
        f"{worst.base_gpus} ({worst.unit} of family {worst.family})"
    )
    return FindingKey(ANALYZER, "poor_scaling", subject, window).build(
        evidence=evidence,
        confidence=0.8 if evidence == "confirmed" else 0.45,
        gpu_hours=round(total.gpu_hours * share, 6),
        usd=usd,
        details={
            "why": why,
            "sizes": [_describe_pace(pace) for pace in paces],
            "share": round(share, 4),
            "hours_of": list(WORKED),
            "signals": {"work": worst.unit, "size": "allocation"},
            "assumed": _list_assumptions(paces),
            **({} if usd is not None else {"no_price": "part of its hours has no price"}),
        },
        recommendations=(
            Recommendation(
                verb="make its ranks communicate less, or run it smaller",
                target=f"{subject.workload_kind}/{subject.namespace}/{subject.workload}",
                why=why,
                reversible=True,
                undo="restore its settings and its size",
                gpu_hours_per_day=round(total.gpu_hours * share * 86_400 / window.seconds, 4),
                usd_per_day=compute_per_day(usd, window),
                caution="a smaller job ends later: whoever waits for it decides",
                saving="capacity",
                effort="advanced",
                claims=money.claims(owner, share, WORKED),
            ),
        ),
    )


def build_subject(row: JobPace) -> Subject:
    """Return the job of a row, with its team and its GPU model."""
    return Subject(*row.owner, team=row.team, models=(row.model,))


def _judge_evidence(paces: list[JobThroughput], settings: ScalingSettings) -> Evidence:
    """Return the evidence.

    Confirmed needs enough hours of both sizes, a real throughput, no conflict.
    """
    least = settings.least_hours
    sure = all(
        pace.row.hours >= least
        and pace.base_hours >= least
        and pace.unit != STEPS
        and pace.row.world_size in {None, pace.row.gpus}
        for pace in paces
    )
    return "confirmed" if sure else "suspected"


def _list_assumptions(paces: list[JobThroughput]) -> list[str]:
    assumptions = ["jobs of one family train the same model alike, on whatever number of GPUs"]
    if any(pace.unit == STEPS for pace in paces):
        assumptions.append(
            "only steps are reported: the batch is taken to grow with the GPUs, the least loss"
        )
    if any(pace.row.world_size not in {None, pace.row.gpus} for pace in paces):
        assumptions.append("the job counts other ranks than the GPUs that it holds")
    return assumptions


def _describe_pace(pace: JobThroughput) -> dict[str, Any]:
    row = pace.row
    return {
        "gpus": row.gpus,
        "model": row.model,
        "hours": row.hours,
        "per_gpu": round(pace.per_gpu, 4),
        "smallest": {
            "gpus": pace.base_gpus,
            "hours": pace.base_hours,
            "per_gpu": round(pace.base_per_gpu, 4),
        },
        "efficiency": round(pace.efficiency, 4),
        "from": row.first_hour.replace(tzinfo=UTC),
        "to": row.last_hour.replace(tzinfo=UTC) + HOUR,
    }
