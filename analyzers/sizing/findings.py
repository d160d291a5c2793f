"""Build the findings of a workload: its symptom, its hours and dollars, and the remedy."""

from datetime import UTC, timedelta
from decimal import Decimal
from typing import Any

from analyzers.advice import read_advice
from analyzers.sizing.rows import WorkloadUse
from analyzers.sizing.symptoms import Symptom
from analyzers.work import (
    WorkloadCosts,
    build_subject,
    compute_per_day,
    compute_share,
)
from analyzers.workload_rows import Owner
from fallow.models import Claim, Evidence, Finding, FindingKey, Recommendation, Subject
from fallow.window import Window

ANALYZER = "sizing"
HOUR = timedelta(hours=1)
FIGURES = ("gpus", "act", "engine", "sm", "tensor", "fp32", "dram", "sm_peak", "dram_peak", "eff")

CEILING = "the share is the most that may be wasted; what a change wins back is not known before"


def build_finding(
    row: WorkloadUse, sign: Symptom, window: Window, bill: WorkloadCosts, reserved: bool
) -> Finding:
    """Return the finding of one workload and its symptom."""
    owner = row.owner
    total = bill.total(owner, sign.states)
    hours = row.work_h if total is None else total.gpu_hours
    usd = None if total is None or total.usd is None else compute_share(total.usd, sign.share)
    start = max(window.start, row.first_hour.replace(tzinfo=UTC))
    end = min(window.end, row.last_hour.replace(tzinfo=UTC) + HOUR)
    subject = build_subject(row)
    figures = {name: getattr(row, name) for name in FIGURES}
    wasted_hours = round(hours * sign.share, 6)
    details: dict[str, Any] = {
        "why": sign.advice[0][0].replace("_", " ")
        + f": {'at most ' * sign.ceiling}{sign.share:.0%} of {hours:,.1f} GPU-hours",
        "signals": sign.signals,
        "figures": {n: _round_value(v) for n, v in figures.items() if v is not None},
        "share": round(sign.share, 4),
        "hours_of": list(sign.states),
        "memory": _describe_memory(row, reserved=reserved),
        "assumptions": [
            *((CEILING,) if sign.ceiling else ()),
            *_list_assumptions(row, priced=usd is not None, in_ledger=total is not None),
        ],
    }
    return FindingKey(ANALYZER, sign.kind, subject, Window(start, end)).build(
        evidence=sign.evidence,
        confidence=_compute_confidence(row, sign.evidence),
        gpu_hours=wasted_hours,
        usd=usd,
        details=details,
        recommendations=tuple(
            _recommend(kind, words, subject, _build_claims(bill, owner, share, sign, hours), window)
            for kind, share, words in sign.advice
        ),
    )


def build_blocking(  # noqa: PLR0917  (one call)
    kind: str,
    subject: Subject,
    window: Window,
    claims: tuple[Claim, ...],
    evidence: Evidence,
    details: dict[str, Any],
    words: dict[str, Any],
) -> Finding:
    """Return the finding of a workload whose requests make GPUs of its node unusable."""
    usd = [c.usd for c in claims]
    return FindingKey(ANALYZER, kind, subject, window).build(
        evidence=evidence,
        confidence=0.9 if evidence == "confirmed" else 0.45,
        gpu_hours=round(sum(c.gpu_hours for c in claims), 6),
        usd=None if None in usd else sum((u for u in usd if u is not None), Decimal(0)),
        details=details,
        recommendations=(_recommend(kind, words, subject, claims, window),),
    )


def _recommend(
    kind: str, words: dict[str, Any], subject: Subject, claims: tuple[Claim, ...], window: Window
) -> Recommendation:
    advice = read_advice(ANALYZER)[kind].fill(words)
    usd = [c.usd for c in claims]
    hours = sum(c.gpu_hours for c in claims)
    total = None if not usd or None in usd else sum((u for u in usd if u is not None), Decimal(0))
    return Recommendation(
        verb=advice.verb,
        target=f"{subject.workload_kind}/{subject.namespace}/{subject.workload}",
        why=advice.why,
        reversible=bool(advice.undo),
        undo=advice.undo or None,
        gpu_hours_per_day=round(hours * 86_400 / window.seconds, 4),
        usd_per_day=compute_per_day(total, window),
        caution=advice.caution or None,
        effort=advice.effort,
        claims=claims,
        parameters=words.get("parameters") or {},
    )


def _build_claims(
    bill: WorkloadCosts, owner: Owner, share: float, sign: Symptom, hours: float
) -> tuple[Claim, ...]:
    claims = bill.claims(owner, share, sign.states)
    # Without a ledger the hours have no states: they are claimed as productive.
    return claims or (Claim(*owner, None, "productive", round(hours * share, 6)),)


def _compute_confidence(row: WorkloadUse, evidence: Evidence) -> float:
    seen: float = 1 - row.conflict_s / max(row.device_s, 1)
    return round(max(0.0, min(1.0, seen)) * (0.9 if evidence == "confirmed" else 0.45), 4)


def _describe_memory(row: WorkloadUse, *, reserved: bool) -> str:
    if row.mem_most is None or row.memory_bytes is None:
        return "unknown: it is not reported"
    used = f"{row.mem_most / 2**30:.1f} of {row.memory_bytes / 2**30:.0f} GiB"
    if reserved:
        return f"unknown: {used} are held flat, as frameworks do that reserve memory at once"
    return f"at most {used}"


def _list_assumptions(row: WorkloadUse, *, priced: bool, in_ledger: bool) -> list[str]:
    assumptions = ["hours in which a device is active for less than half are the idle analyzer's"]
    if not in_ledger:
        assumptions.append(
            "the ledger has no hours of it: GPU-hours are telemetry's, and no dollars"
        )
    elif not priced:
        assumptions.append("some of its hours have no price: no dollars")
    if row.thin:
        assumptions.append(f"judged from {row.work_h:.1f} GPU-hours at work only: never confirmed")
    if row.dram is None and row.sm is not None:
        assumptions.append("memory bandwidth is not measured")
    return assumptions


def _round_value(value: Any) -> Any:
    return round(value, 4) if isinstance(value, float) else value
