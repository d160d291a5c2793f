"""What was planted, and how what was found compares with it. Analyzers never see this."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

import msgspec
import numpy as np

from fallow.gpu_models import canonical
from fallow.nouns import Finding
from runtime.fleet.plan import Fleet
from runtime.fleet.signals import Signals

Subject = tuple[str, str, str]
"""Namespace, workload kind, workload."""


class Stretch(msgspec.Struct, frozen=True):
    """A time in which a workload was made to hold devices without using them."""

    subject: Subject
    start: datetime
    end: datetime
    gpus: float
    """Physical GPUs, an instance by its slices."""
    model: str
    """Canonical model of the devices, as the ledger names it."""
    partly: bool
    """Only some of the workload's devices were left unused."""

    @property
    def gpu_hours(self) -> float:
        """GPU-hours held for nothing."""
        return self.gpus * (self.end - self.start).total_seconds() / 3600


class Comparison(msgspec.Struct, frozen=True):
    """Planted against found, in GPU-hours of idle; a false alarm is a finding that hits nothing.

    `precision` is the part of the found that was planted, `recall` the part of the planted that
    was found. Telemetry that was silent cannot be found and counts against recall.
    """

    planted_gpu_hours: float
    found_gpu_hours: float
    matched_gpu_hours: float
    planted_workloads: int
    found_workloads: int
    false_alarms: int

    @property
    def precision(self) -> float:
        """Matched over found; 1 when nothing was found."""
        return self.matched_gpu_hours / self.found_gpu_hours if self.found_gpu_hours else 1.0

    @property
    def recall(self) -> float:
        """Matched over planted; 1 when nothing was planted."""
        return self.matched_gpu_hours / self.planted_gpu_hours if self.planted_gpu_hours else 1.0


def planted(fleet: Fleet, signals: Signals) -> list[Stretch]:
    """Return every planted stretch, one per workload and run of unused ticks."""
    holders: dict[Subject, dict[int, set[int]]] = {}
    for row, device in enumerate(fleet.devices):
        for pod in device.pods:
            subject = (pod.namespace, pod.kind, pod.workload)
            holders.setdefault(subject, {}).setdefault(row, set()).add(fleet.pods.index(pod))
    out: list[Stretch] = []
    for subject, rows in holders.items():
        used = {
            row: np.isin(signals.holder[row], list(pods)) & signals.held[row]
            for row, pods in rows.items()
        }
        idle = [row for row, marks in used.items() if marks.any()]
        if not idle:
            continue
        gpus = sum(fleet.devices[row].weight for row in idle)
        for begin, end in _runs(used[idle[0]]):
            out.append(
                Stretch(
                    subject,
                    _at(signals, begin),
                    _at(signals, end),
                    gpus,
                    _canonical(fleet.devices[idle[0]].model.name),
                    partly=len(idle) < len(rows),
                )
            )
    return out


def compare(stretches: Sequence[Stretch], findings: Iterable[Finding]) -> Comparison:
    """Lay the findings' windows over the planted stretches, workload by workload."""
    by_subject: dict[Subject, list[Stretch]] = {}
    for stretch in stretches:
        by_subject.setdefault(stretch.subject, []).append(stretch)
    found = matched = 0.0
    false_alarms = 0
    subjects: set[Subject] = set()
    for finding in findings:
        subject = (
            finding.subject.namespace, finding.subject.workload_kind, finding.subject.workload
        )  # fmt: skip
        hours = finding.window.seconds / 3600
        overlap = sum(
            max(
                0.0,
                (
                    min(finding.window.end, s.end) - max(finding.window.start, s.start)
                ).total_seconds(),
            )
            / 3600
            for s in by_subject.get(subject, ())
        )
        found += finding.gpu_hours
        matched += finding.gpu_hours * min(1.0, overlap / hours)
        false_alarms += overlap == 0
        subjects.add(subject)
    return Comparison(
        planted_gpu_hours=sum(s.gpu_hours for s in stretches),
        found_gpu_hours=found,
        matched_gpu_hours=matched,
        planted_workloads=len(by_subject),
        found_workloads=len(subjects),
        false_alarms=false_alarms,
    )


def _canonical(name: str) -> str:
    known = canonical(name)
    return known.gpu_model if known else name


def _runs(marks: "np.ndarray[tuple[int], np.dtype[np.bool_]]") -> list[tuple[int, int]]:
    steps = np.diff(np.concatenate([[0], marks.astype(np.int8), [0]]))
    begins, ends = np.flatnonzero(steps == 1), np.flatnonzero(steps == -1)
    return list(zip(begins.tolist(), ends.tolist(), strict=True))


def _at(signals: Signals, tick: int) -> datetime:
    moment = float(signals.ticks[0]) + tick * signals.interval_s
    return datetime.fromtimestamp(moment, tz=UTC)
