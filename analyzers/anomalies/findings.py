"""Build the finding of a rise: how much, since when, by which causes, and its owner."""

from collections.abc import Iterator, Sequence
from decimal import ROUND_DOWN, Decimal
from typing import Any

from analyzers.anomalies.changes import SpendChange
from analyzers.anomalies.rows import WorkloadSpend
from analyzers.money import SMALLEST
from fallow.models import Claim, Finding, Recommendation, State, Subject, compute_finding_id
from fallow.window import Window

ANALYZER = "anomalies"
LISTED = 10


def build_subject(change: SpendChange) -> Subject:
    """Return the subject of a change."""
    key = change.key
    if key.team:
        return Subject(key.cluster, "", "Team", key.team, team=key.team)
    return Subject(key.cluster, key.namespace, "Namespace", key.namespace)


def build_finding(change: SpendChange, workloads: Sequence[WorkloadSpend]) -> Finding:
    """Return the finding of a rise; never confirmed: the owner has to explain it."""
    kind = f"{change.measure}_anomaly"
    about = build_subject(change)
    more = max(float(change.gpu_hours - change.gpu_hours_usual), 0.0)
    usd = change.change if change.usd is not None else None
    return Finding(
        id=compute_finding_id(ANALYZER, kind, about, change.onset),
        analyzer=ANALYZER,
        kind=kind,
        subject=about,
        window=Window(change.start, change.end),
        verdict="wasteful" if change.measure == "waste" else "unknown",
        evidence="suspected",
        # Under any distribution, an ordinary hour exceeds n ordinary ones once in n + 1 times.
        confidence=round(change.weeks / (change.weeks + 1), 2),
        gpu_hours=round(more, 6),
        usd=usd,
        details=describe_change(change)
        | {"workloads": [_describe_workload(row) for row in workloads[:LISTED]]},
        recommendations=(_recommend(change, workloads, more, usd),),
    )


def describe_change(change: SpendChange) -> dict[str, Any]:
    """Return the figures of a change; `because` sums to `change`."""
    unit = "usd" if change.usd is not None else "gpu_hours"
    now, usual = (
        (change.usd, change.usd_usual)
        if change.usd is not None and change.usd_usual is not None
        else (change.gpu_hours, change.gpu_hours_usual)
    )
    return {
        "why": _explain(change),
        "measure": change.measure,
        "unit": unit,
        "change": float(change.change),
        "because": {name: float(value) for name, value in change.causes.items()},
        "actual": round(float(now), 2),
        "usual": round(float(usual), 2),
        "gpu_hours": round(float(change.gpu_hours), 3),
        "gpu_hours_usual": round(float(change.gpu_hours_usual), 3),
        "hours": change.hours,
        "since": change.onset.isoformat(),
        "weeks_compared": change.weeks,
        "greatest_score": round(change.score, 2),
        "seen_by": "spike" if change.spike else "CUSUM",
        "by": [dict(row) for row in change.by],
        **(
            {}
            if change.usd is not None
            else {"assumed": ["part of it has no price: judged in GPU-hours, without a price"]}
        ),
    }


def _explain(change: SpendChange) -> str:
    amount, word = abs(float(change.change)), "more" if change.change >= 0 else "less"
    total = f"{amount:,.2f} USD" if change.usd is not None else f"{amount:,.1f} GPU-hours"
    usual = change.usd_usual if change.usd_usual is not None else change.gpu_hours_usual
    share = f" ({amount / float(usual):.0%})" if usual else ""
    greatest = max(change.causes, key=lambda name: abs(change.causes[name]))
    verb = "wasted" if change.measure == "waste" else "spent"
    return (
        f"{total} {word}{share} {verb} in {change.hours} hours than in the same hours of the weeks "
        f"before; most of it is {greatest}"
    )


def _recommend(
    change: SpendChange, workloads: Sequence[WorkloadSpend], more: float, usd: Decimal | None
) -> Recommendation:
    about = build_subject(change)
    wasted = change.measure == "waste"
    return Recommendation(
        verb="ask what changed, and stop what is not needed" if wasted else "ask what changed",
        target=f"{about.workload_kind}/{about.workload}",
        why=_explain(change),
        reversible=True,
        caution="a statistic, not a verdict: a planned change belongs into anomalies.known_changes",
        saving="capacity",
        effort="continuous",
        claims=tuple(_claim_excess(about.cluster, workloads, more, usd)) if wasted else (),
    )


def _claim_excess(
    cluster: str, workloads: Sequence[WorkloadSpend], more: float, usd: Decimal | None
) -> Iterator[Claim]:
    """Claim the excess hours from those that waste most, never more than they wasted."""
    for row in sorted(
        workloads,
        key=lambda r: (-r.wasted, r.namespace, r.workload_kind, r.workload),
    ):
        of_states: tuple[tuple[State, float, Decimal | None], ...] = (
            ("idle", row.idle, row.idle_usd),
            ("lost", row.lost, row.lost_usd),
        )
        for state, wasted, cost in of_states:
            hours = min(wasted, more)
            if hours <= 0:
                continue
            worth = None
            if usd is not None and cost is not None:
                part = Decimal(repr(hours)) / Decimal(repr(wasted))
                worth = min(cost * part, usd).quantize(SMALLEST, ROUND_DOWN)
                usd -= worth
            more -= hours
            yield Claim(
                cluster,
                row.namespace,
                row.workload_kind,
                row.workload,
                None,
                state,
                hours,
                worth,
            )


def _describe_workload(row: WorkloadSpend) -> dict[str, Any]:
    usd = row.usd
    return {
        "namespace": row.namespace,
        "workload": f"{row.workload_kind}/{row.workload}",
        "gpu_hours": round(row.gpu_hours, 3),
        "usd": None if usd is None else round(float(usd), 2),
        "idle_or_lost_gpu_hours": round(row.wasted, 3),
    }
