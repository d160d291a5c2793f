"""Find jobs in the inventory, and the stretches in which none of a job's devices works."""

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from analyzers.work import OWNER, Owner
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


class QuietStretch(msgspec.Struct, frozen=True):
    """A stretch in which one device does no work (a row of `quiet.sql`)."""

    cluster: str
    namespace: str
    workload_kind: str
    workload: str
    device: str
    pod: str
    node: str | None
    model: str | None
    weight: float
    interval_s: float
    start: datetime
    end: datetime
    spins: int
    """Samples in which it spins."""
    blinds: int
    """Samples for which it is unknown whether it spins."""
    last_spin: datetime | None
    first_rest: datetime | None
    least_w: float | None
    power_w: float | None
    most_w: float | None
    level_w: float | None
    """Its median power while it works."""
    frozen: bool
    """True: its energy counter, or its fine-grained power, repeats one old value."""
    no_tensor: bool
    no_dram: bool
    no_link: bool

    @property
    def owner(self) -> Owner:
        """Return the key of its workload."""
        return self.cluster, self.namespace, self.workload_kind, self.workload

    @property
    def idle_since(self) -> datetime | None:
        """Return since when it is idle until the end; None = it spins, or this is unknown."""
        return self.left if self.spins else self.first_rest

    @property
    def left(self) -> datetime | None:
        """Return when it left the spin and did not return; None = it spins, or never did."""
        if self.first_rest is None or self.last_spin is None or self.first_rest <= self.last_spin:
            return None
        return self.first_rest


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


def build_jobs(rows: Iterable[Mapping[str, Any]]) -> dict[Owner, TrainingJob]:
    """Return the jobs of these pods (rows of `ranks.sql`)."""
    by_owner: dict[Owner, list[Mapping[str, Any]]] = {}
    for row in rows:
        owner: Owner = tuple(row[name] for name in OWNER)
        by_owner.setdefault(owner, []).append(row)
    return {
        owner: TrainingJob(
            owner,
            next((r["team"] for r in pods if r["team"]), None),
            tuple(
                JobRank(
                    r["pod"], r["who"], r["phase"], r["gpus"], r["start"], r["ended"],
                    read_stored_pod(json.loads(r["annotations"])) if r["annotations"] else {},
                )
                for r in pods
            ),
        )
        for owner, pods in by_owner.items()
    }  # fmt: skip


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
