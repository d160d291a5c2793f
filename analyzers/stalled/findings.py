"""What is written down about a stalled job."""

from datetime import UTC, datetime
from decimal import ROUND_HALF_EVEN, Decimal

from analyzers.money import SMALLEST
from analyzers.stalled.gangs import Job, Quiet
from analyzers.stalled.judge import Stall
from analyzers.work import HELD, MOST_NAMED, Bill
from fallow.nouns import Finding, Subject, finding_id
from fallow.window import Window, format_duration

ANALYZER, KIND = "stalled", "stalled_job"


def found(stall: Stall, costs: Bill, window: Window) -> Finding:
    """Return a stall as a finding; its dollars are those of the job's own hours."""
    subject = subject_of(stall.job, stall.quiet)
    start, end = stall.start.replace(tzinfo=UTC), stall.end.replace(tzinfo=UTC)
    start = max(start, window.start)
    hours = round(sum(q.weight for q in stall.quiet) * (end - start).total_seconds() / 3600, 6)
    confirmed = stall.evidence == "confirmed"
    kept = stall.checkpoints
    return Finding(
        id=finding_id(ANALYZER, KIND, subject, start),
        analyzer=ANALYZER,
        kind=KIND,
        subject=subject,
        window=Window(start, end),
        verdict="wasteful",
        evidence=stall.evidence,
        confidence=0.9 if confirmed else 0.45,
        gpu_hours=hours,
        usd=_usd(costs, subject, hours),
        details={
            "why": _why(stall),
            "witnesses": _signals(stall),
            "devices": [q.device for q in stall.quiet],
            "how": stall.how,
            "progress": None
            if stall.progress is None
            else {
                "metric": stall.progress.metric,
                "value": stall.progress.value,
                "since": _text(stall.progress.since),
            },
            "left_first": None
            if stall.left is None
            else {
                "pod": stall.left.pod,
                "device": stall.left.device,
                "node": stall.left.node,
                "at": _text(stall.left.at),
            },
            "checkpoint": None
            if kept is None
            else {"every_s": round(kept.interval_h * 3600), "source": kept.source},
            "actionable": confirmed,
            "reasons": []
            if confirmed
            else [
                "its devices alone say so: no progress metric, no checkpoints, no rank that left"
            ],
        },
    )


def subject_of(job: Job, quiet: tuple[Quiet, ...]) -> Subject:
    """Return the job, its nodes and its models."""
    return Subject(
        *job.owner,
        team=job.team,
        nodes=tuple(sorted({q.node for q in quiet if q.node}))[:MOST_NAMED],
        models=tuple(sorted({q.model for q in quiet if q.model})),
    )


def _usd(costs: Bill, subject: Subject, hours: float) -> Decimal | None:
    """Return what the hours cost at the job's own price per GPU-hour; None = it has none."""
    owner = subject.cluster, subject.namespace, subject.workload_kind, subject.workload
    total = costs.total(owner, HELD)
    if total is None or total.usd is None or not total.gpu_hours:
        return None
    share = Decimal(repr(hours)) / Decimal(repr(total.gpu_hours))
    return (total.usd * share).quantize(SMALLEST, ROUND_HALF_EVEN)


def _why(stall: Stall) -> str:
    length = format_duration(round((stall.end - stall.start).total_seconds()))
    count = len(stall.quiet)
    gpus = f"{count} GPU" if count == 1 else f"all {count} GPUs"
    does = "spin and move no data" if stall.how == "spin" else "rest"
    if count == 1:
        does = does.replace("spin and move", "spins and moves").replace("rest", "rests")
    said = [f"{gpus} {does} for {length}"]
    if stall.progress is not None:
        said.append(f"{stall.progress.metric} stands at {stall.progress.value:g}")
    if stall.missed_s is not None:
        said.append(f"no checkpoint for {format_duration(round(stall.missed_s))}")
    if stall.left is not None:
        said.append(f"{stall.left.pod} left first, at {stall.left.at:%H:%M:%S}")
    return "; ".join(said)


def _signals(stall: Stall) -> dict[str, str]:
    spinning = [q for q in stall.quiet if q.power_w is not None and q.level_w]
    power = "at rest"
    if stall.how == "spin":
        now = sum(q.power_w or 0 for q in spinning) / len(spinning)
        work = sum(q.level_w or 0 for q in spinning) / len(spinning)
        power = f"{now:.0f} W flat, {work:.0f} W at work (mean of the ranks)"
    kept = stall.checkpoints
    return {
        "compute": "engines busy, no tensor, memory or link activity"
        if stall.how == "spin"
        else "engines at rest",
        "physics": power,
        "progress": "unknown"
        if stall.progress is None
        else f"{stall.progress.metric} unchanged since {_text(stall.progress.since)}",
        "checkpoints": "unknown"
        if kept is None
        else f"every {format_duration(round(kept.interval_h * 3600))} by {kept.source}"
        + (", the last one is overdue" if stall.missed_s is not None else ""),
        "ranks": "all alike"
        if stall.left is None
        else f"{stall.left.device} of {stall.left.pod} left the spin first",
    }


def _text(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"
