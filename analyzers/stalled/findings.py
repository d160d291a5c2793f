"""Build the finding of a stalled job."""

from datetime import UTC, datetime
from decimal import ROUND_HALF_EVEN, Decimal

from analyzers.money import SMALLEST
from analyzers.stalled.gangs import TrainingJob
from analyzers.stalled.judge import StalledJob
from analyzers.stalled.rows import QuietStretch
from analyzers.work import ALLOCATED, MOST_NAMED, WorkloadCosts
from fallow.models import STALLED_JOB, Finding, FindingKey, State, Subject
from fallow.stalled_details import JobCheckpoint, LeftRank, StalledDetails, StalledProgress
from fallow.window import Window, format_duration

ANALYZER = "stalled"
DEVICES_ALONE = "its devices alone say so: no progress metric, no checkpoints, no rank that left"
LEDGER_STATES: dict[str, tuple[State, ...]] = {
    "spin": ("low", "productive"),
    "rest": ("idle", "low"),
}
"""Ledger states of a stalled job's hours, by the kind of hang."""


def build_finding(stall: StalledJob, costs: WorkloadCosts, window: Window) -> Finding:
    """Return a stall as a finding; its dollars are those of the job's own hours."""
    subject = build_subject(stall.job, stall.quiet)
    start, end = stall.start.replace(tzinfo=UTC), stall.end.replace(tzinfo=UTC)
    start = max(start, window.start)
    hours = round(sum(q.weight for q in stall.quiet) * (end - start).total_seconds() / 3600, 6)
    confirmed = stall.evidence == "confirmed"
    return FindingKey(ANALYZER, STALLED_JOB, subject, Window(start, end)).build(
        evidence=stall.evidence,
        confidence=0.9 if confirmed else 0.45,
        gpu_hours=hours,
        usd=_compute_usd(costs, subject, hours),
        details=_describe(stall, _split_states(costs, subject, stall.how, hours)).document(),
    )


def _describe(stall: StalledJob, hours_of: dict[str, float]) -> StalledDetails:
    confirmed = stall.evidence == "confirmed"
    progress, left, checkpoints = stall.progress, stall.left, stall.checkpoints
    return StalledDetails(
        why=_explain(stall),
        signals=_describe_signals(stall),
        devices=tuple(q.device for q in stall.quiet),
        how=stall.how,
        hours_of=hours_of,
        progress=StalledProgress(progress.metric, progress.value, _format_time(progress.since))
        if progress
        else None,
        left_first=LeftRank(left.pod, left.device, left.node, _format_time(left.at))
        if left
        else None,
        checkpoint=JobCheckpoint(
            round(checkpoints.interval_h * 3600),
            checkpoints.source,
            _format_time(stall.saved_at) if stall.saved_at else None,
        )
        if checkpoints
        else None,
        actionable=confirmed,
        reasons=() if confirmed else (DEVICES_ALONE,),
    )


def build_subject(job: TrainingJob, quiet: tuple[QuietStretch, ...]) -> Subject:
    """Return the job, its nodes and its models."""
    return Subject(
        *job.owner,
        team=job.team,
        nodes=tuple(sorted({q.node for q in quiet if q.node}))[:MOST_NAMED],
        models=tuple(sorted({q.model for q in quiet if q.model})),
    )


def _compute_usd(costs: WorkloadCosts, subject: Subject, hours: float) -> Decimal | None:
    """Return the cost of the hours at the job's own price per GPU-hour; None = it has none."""
    owner = subject.cluster, subject.namespace, subject.workload_kind, subject.workload
    total = costs.total(owner, ALLOCATED)
    if total is None or total.usd is None or not total.gpu_hours:
        return None
    share = Decimal(repr(hours)) / Decimal(repr(total.gpu_hours))
    return (total.usd * share).quantize(SMALLEST, ROUND_HALF_EVEN)


def _split_states(
    costs: WorkloadCosts, subject: Subject, how: str, hours: float
) -> dict[str, float]:
    """Return the ledger states of the hours: together they are at most these hours.

    A spinning device is low, or productive where its power hides the spin. Hours that are not in
    the ledger yet get the first state.
    """
    states = LEDGER_STATES[how]
    owner = subject.cluster, subject.namespace, subject.workload_kind, subject.workload
    left, by_state = hours, {}
    for state in states:
        total = costs.total(owner, (state,))
        have = min(left, total.gpu_hours if total else 0.0)
        by_state[state], left = round(have, 6), left - have
    by_state[states[0]] = round(by_state[states[0]] + left, 6)
    return {state: amount for state, amount in by_state.items() if amount}


def _explain(stall: StalledJob) -> str:
    length = format_duration(round((stall.end - stall.start).total_seconds()))
    count = len(stall.quiet)
    gpus = f"{count} GPU" if count == 1 else f"all {count} GPUs"
    does = "spin and move no data" if stall.how == "spin" else "rest"
    if count == 1:
        does = does.replace("spin and move", "spins and moves").replace("rest", "rests")
    parts = [f"{gpus} {does} for {length}"]
    if stall.progress is not None:
        parts.append(f"{stall.progress.metric} stands at {stall.progress.value:g}")
    if stall.missed_s is not None:
        parts.append(f"no checkpoint for {format_duration(round(stall.missed_s))}")
    if stall.left is not None:
        parts.append(f"{stall.left.pod} left first, at {stall.left.at:%H:%M:%S}")
    return "; ".join(parts)


def _describe_signals(stall: StalledJob) -> dict[str, str | None]:
    spinning = [q for q in stall.quiet if q.power_w is not None and q.level_w]
    power = "idle"
    if stall.how == "spin":
        now = sum(q.power_w or 0 for q in spinning) / len(spinning)
        work = sum(q.level_w or 0 for q in spinning) / len(spinning)
        power = f"{now:.0f} W flat, {work:.0f} W at work (mean of the ranks)"
    checkpoints = stall.checkpoints
    return {
        "compute": "engines busy, no tensor, memory or link activity"
        if stall.how == "spin"
        else "engines idle",
        "physics": power,
        "progress": "unknown"
        if stall.progress is None
        else f"{stall.progress.metric} unchanged since {_format_time(stall.progress.since)}",
        "checkpoints": "unknown"
        if checkpoints is None
        else f"every {format_duration(round(checkpoints.interval_h * 3600))} "
        f"by {checkpoints.source}"
        + (", the last one is overdue" if stall.missed_s is not None else ""),
        "ranks": "all alike"
        if stall.left is None
        else f"{stall.left.device} of {stall.left.pod} left the spin first",
    }


def _format_time(time: datetime) -> str:
    return f"{time:%Y-%m-%dT%H:%M:%SZ}"
