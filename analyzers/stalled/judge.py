"""Judge whether a job is stalled, from its devices, its progress and its hosts separately."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

import msgspec
import polars as pl

from analyzers.checkpoints import Checkpoints
from analyzers.stalled.gangs import QuietSegment, TrainingJob
from analyzers.stalled.hosts import (
    find_last_checkpoint,
    find_missed_checkpoint,
    find_phase,
    is_quiescent,
)
from analyzers.stalled.limits import read_limits
from analyzers.stalled.progress import JobProgress, find_progress
from analyzers.stalled.rows import QuietStretch, UnchangedStretch
from fallow.models import Evidence

FIELDS = {
    "no_tensor": "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
    "no_dram": "DCGM_FI_PROF_DRAM_ACTIVE",
    "no_link": "DCGM_FI_PROF_PCIE_TX_BYTES or DCGM_FI_PROF_NVLINK_TX_BYTES",
}
"""Fields of dcgm-exporter that separate work from a spin."""


class FirstLeaver(msgspec.Struct, frozen=True):
    """The rank that left the spin first."""

    pod: str
    device: str
    node: str | None
    at: datetime


class StallSignals(msgspec.Struct, frozen=True):
    """The data besides the devices."""

    progress: Mapping[tuple[str, str, str], Sequence[UnchangedStretch]]
    hosts: pl.DataFrame
    checkpoints: Checkpoints | None
    bursts: Sequence[float]
    """Bursts of writing of its hosts, epoch seconds."""


class StalledJob(msgspec.Struct, frozen=True):
    """A stalled job, its start, and the signals."""

    job: TrainingJob
    start: datetime
    end: datetime
    quiet: tuple[QuietStretch, ...]
    how: str
    """`spin` or `rest`."""
    evidence: Evidence
    progress: JobProgress | None
    left: FirstLeaver | None
    missed_s: float | None
    """Seconds since the last checkpoint, if the next one is overdue."""
    checkpoints: Checkpoints | None
    saved_at: datetime | None
    """When the last checkpoint before the hang was written; None = none was seen."""


class UncertainStall(msgspec.Struct, frozen=True):
    """A job that may be stalled, and why it is unknown."""

    job: TrainingJob
    segment: QuietSegment
    why: str


def judge_job(
    job: TrainingJob, segment: QuietSegment, signals: StallSignals, least_s: float
) -> StalledJob | UncertainStall | None:
    """Judge one job over a stretch in which all of its devices do no work.

    None = it is not stalled: it is in a phase that ends, or it progresses.
    """
    progress = find_progress(job, signals.progress, segment)
    start = segment.start
    # A step that ended in the stretch: the time before it was no stall. A step that ended just
    # before it shows in the metric up to two of its intervals later.
    if progress is not None and progress.since > start + timedelta(seconds=2 * progress.interval_s):
        start = progress.since
    idle_since = [at for q in segment.quiet if (at := q.idle_since) is not None]
    resting = len(idle_since) == len(segment.quiet)
    if resting:
        start = max(start, *idle_since, *([] if progress is None else [progress.since]))
    waits = any(rank.phase == "Pending" for rank in job.ranks)
    if waits or (segment.end - start).total_seconds() < least_s:
        return None
    blind = [q for q in segment.quiet if q.blinds]
    if blind:
        return UncertainStall(job, segment, _describe_absent(blind))
    if frozen := next((q for q in segment.quiet if q.frozen), None):
        return UncertainStall(
            job, segment, f"the telemetry of {frozen.device} repeats an old value"
        )
    if resting:
        return _judge_resting(job, segment, progress, signals, start)
    # Only the devices are evidence until progress has stood still for as long itself.
    stands = progress is not None and (segment.end - progress.since).total_seconds() >= least_s
    return _judge_spinning(job, segment, progress if stands else None, signals, start)


def _judge_spinning(
    job: TrainingJob,
    segment: QuietSegment,
    progress: JobProgress | None,
    signals: StallSignals,
    start: datetime,
) -> StalledJob | UncertainStall | None:
    """Judge a job whose devices spin: all of them, or all until one stopped."""
    leaver = _find_leaver(segment)
    if leaver is None and not all(q.spins and q.first_rest is None for q in segment.quiet):
        return None
    if find_phase(signals.hosts, job, start, segment.end) is not None:
        return None
    if power := _explain_power(segment.quiet):
        return UncertainStall(job, segment, power)
    missed = find_missed_checkpoint(signals.checkpoints, signals.bursts, start, segment.end)
    confirmed = progress is not None or leaver is not None or missed is not None
    return StalledJob(
        job, start, segment.end, segment.quiet, "spin", "confirmed" if confirmed else "suspected",
        progress, leaver, missed, signals.checkpoints,
        find_last_checkpoint(signals.checkpoints, signals.bursts, start),
    )  # fmt: skip


def _judge_resting(
    job: TrainingJob,
    segment: QuietSegment,
    progress: JobProgress | None,
    signals: StallSignals,
    start: datetime,
) -> StalledJob | UncertainStall | None:
    """Judge a job whose devices are idle: it is stalled only if its progress moved before."""
    if progress is None or not progress.moved:
        return None
    quiet = is_quiescent(signals.hosts, job, start, segment.end)
    if quiet is None:
        why = "its progress stands still and its GPUs rest, but whether its hosts prepare data, "
        return UncertainStall(
            job, segment, why + "evaluate or write a checkpoint is unknown (cAdvisor)"
        )
    if not quiet:
        return None
    missed = find_missed_checkpoint(signals.checkpoints, signals.bursts, start, segment.end)
    return StalledJob(
        job, start, segment.end, segment.quiet, "rest", "confirmed", progress, None, missed,
        signals.checkpoints, find_last_checkpoint(signals.checkpoints, signals.bursts, start),
    )  # fmt: skip


def _describe_absent(blind: Sequence[QuietStretch]) -> str:
    names = [text for field, text in FIELDS.items() if any(getattr(q, field) for q in blind)]
    if not names:
        return "its GPUs' profiling and utilisation contradict each other, or are missing"
    return (
        f"whether its GPUs spin is unknown on {len(blind)} of them: the exporter lacks "
        + ", ".join(names)
    )


def _find_leaver(segment: QuietSegment) -> FirstLeaver | None:
    """Return the rank that spun with all others and was the first to stop; None = none did.

    A rank that was idle before the others began to spin prepares data, evaluates or saves: the
    others wait for it.
    """
    left = [(at, q) for q in segment.quiet if (at := q.left) is not None]
    stay = [q for q in segment.quiet if q.first_rest is None]
    if not left or not stay or len(left) + len(stay) < len(segment.quiet):
        return None
    if any(not q.spins for q in segment.quiet):
        return None
    at, first = min(left, key=lambda pair: (pair[0], pair[1].device))
    if at - segment.start < timedelta(seconds=read_limits()["together_s"]):
        return None
    return FirstLeaver(first.pod, first.device, first.node, at)


def _explain_power(spinning: Sequence[QuietStretch]) -> str:
    """Return why the power does not prove a spin; empty = it does, on every device."""
    limits = read_limits()
    for q in spinning:
        if q.power_w is None or q.least_w is None or q.most_w is None:
            return f"its GPUs spin, but the power of {q.device} is unknown"
        if q.level_w is None:
            return (
                f"its GPUs spin, but what {q.device} draws at work is unknown: it did no work yet"
            )
        if q.power_w > limits["spin_power"] * q.level_w:
            return (
                f"its GPUs spin, but {q.device} draws {q.power_w:.0f} W, near the "
                f"{q.level_w:.0f} W of its work"
            )
        if q.most_w - q.least_w > limits["flat_power"] * q.power_w:
            return f"its GPUs spin, but the power of {q.device} is not flat"
    return ""
