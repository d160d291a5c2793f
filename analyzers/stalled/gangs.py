"""Find jobs in the inventory, and the stretches in which none of a job's devices works."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from analyzers.stalled.rows import JobPod, QuietStretch
from analyzers.workload_rows import Owner
from fallow.protections import read_stored_pod

METRIC = "fallow.dev/progress-metric"
"""Annotation of a pod: the metric that reports the job's progress."""


class JobRank(msgspec.Struct, frozen=True):
    """A pod of a job."""

    pod: str
    who: int
    """Hash of its cluster, namespace and name."""
    phase: str
    gpus: float
    start: datetime | None
    ended: datetime | None
    annotations: Mapping[str, str]

    def lives(self, start: datetime, end: datetime) -> bool:
        """Return whether it existed during some of a stretch."""
        begun = self.start is None or self.start < end
        return begun and (self.ended is None or self.ended > start)


class TrainingJob(msgspec.Struct, frozen=True):
    """A job and its pods."""

    owner: Owner
    team: str | None
    ranks: tuple[JobRank, ...]

    def metric(self) -> str | None:
        """Return the progress metric that its owner names; None = a common one."""
        named = sorted({r.annotations[METRIC] for r in self.ranks if METRIC in r.annotations})
        return named[0] if named else None

    def within(self, start: datetime, end: datetime) -> "TrainingJob":
        """Return the job with the pods that existed in a stretch."""
        alive = tuple(r for r in self.ranks if r.lives(start, end))
        return msgspec.structs.replace(self, ranks=alive)


class QuietSegment(msgspec.Struct, frozen=True):
    """A stretch in which none of some devices works."""

    start: datetime
    end: datetime
    quiet: tuple[QuietStretch, ...]

    @property
    def seconds(self) -> float:
        """Return its length in seconds."""
        return (self.end - self.start).total_seconds()

    def cut(self, begin: datetime) -> bool:
        """Return whether it may have begun before the data of its devices."""
        return self.start <= begin + timedelta(seconds=2 * max(q.interval_s for q in self.quiet))


def build_jobs(pods: Iterable[JobPod]) -> dict[Owner, TrainingJob]:
    """Return the jobs of these pods."""
    by_owner: dict[Owner, list[JobPod]] = {}
    for pod in pods:
        by_owner.setdefault(pod.owner, []).append(pod)
    return {
        owner: TrainingJob(
            owner,
            next((pod.team for pod in members if pod.team), None),
            tuple(_build_rank(pod) for pod in members),
        )
        for owner, members in by_owner.items()
    }


def _build_rank(pod: JobPod) -> JobRank:
    annotations = read_stored_pod(msgspec.json.decode(pod.annotations)) if pod.annotations else {}
    return JobRank(pod.pod, pod.who, pod.phase, pod.gpus, pod.start, pod.ended, annotations)


def find_segments(stretches: Sequence[QuietStretch], least_s: float) -> list[QuietSegment]:
    """Return the stretches of at least `least_s` with the most devices without work together.

    A device has at most one stretch at a time, so overlapping stretches belong to different
    devices.
    """
    segments: list[QuietSegment] = []
    active: list[QuietStretch] = []
    ahead = sorted(stretches, key=lambda q: (q.start, q.device))
    for quiet in ahead:
        active = [q for q in active if q.end > quiet.start]
        active.append(quiet)
        end = min(q.end for q in active)
        segment = QuietSegment(quiet.start, end, tuple(active))
        if segment.seconds < least_s:
            continue
        # A larger set of devices that begins within it replaces it.
        while (
            segments and len(segments[-1].quiet) < len(active) and segments[-1].end > segment.start
        ):
            segments.pop()
        segments.append(segment)
    return segments
