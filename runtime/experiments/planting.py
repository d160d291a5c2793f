"""Compare findings with what is truly unused in a simulated fleet.

Planted idle time is every device that its workload leaves idle for at least an hour, while a stop
would lose nothing or the workload's other devices compute.
"""

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal

import msgspec
import numpy as np

from fallow.models import Finding
from runtime.experiments.truth import HOUR_S, Course, Doubles, Owner, Truth, list_runs
from simulator.exporters.device_telemetry import get_key
from simulator.models import TICK_S, Marks

MIN_IDLE_S = 3600.0
IDLE = "idle"


class Comparison(msgspec.Struct, frozen=True):
    """Planted and found idle time; a false alarm is a finding without any idle time.

    `precision` is the part of the found GPU-hours that was truly idle; `recall` is the part of the
    planted GPU-hours that findings cover. Time without telemetry counts against recall.
    """

    planted_gpu_hours: float
    found_gpu_hours: float
    covered_gpu_hours: float
    """Planted hours that a finding covers."""
    precision: float
    recall: float
    false_alarms: int
    planted_usd: Decimal | None
    """None where a device has no price."""


def compare(
    truth: Truth,
    courses: Mapping[Owner, Course],
    findings: Sequence[Finding],
    rates: Mapping[str, float],
) -> Comparison:
    """Compare findings of idle devices with the truth; `rates` are dollars per hour by device."""
    by_owner: dict[Owner, list[Finding]] = {}
    findings = [finding for finding in findings if finding.analyzer == IDLE]
    for finding in findings:
        subject = finding.subject
        owner = (subject.namespace, subject.workload_kind, subject.workload)
        by_owner.setdefault(owner, []).append(finding)
    weights = {get_key(d): d.weight for d in truth.devices}
    planted = covered = 0.0
    usd: float | None = 0.0
    for owner, course in courses.items():
        for device, (gpus, idle) in course.by_device.items():
            marks = _mark_unused(course, gpus, idle)
            mine = _mark_findings(truth.ticks, by_owner.get(owner, ()), device)
            hours = convert_hours(gpus[marks])
            planted += hours
            covered += convert_hours(gpus[marks & mine])
            rate = rates.get(device)
            if hours and (usd is None or rate is None):
                usd = None
            elif hours and usd is not None and rate is not None:
                usd += hours / weights[device] * rate
    hit = [
        _sum_true_hours(truth.ticks, courses, owner, f)
        for owner, fs in by_owner.items()
        for f in fs
    ]
    whole = sum(f.gpu_hours for f in findings)
    return Comparison(
        planted_gpu_hours=planted,
        found_gpu_hours=whole,
        covered_gpu_hours=covered,
        precision=sum(hit) / whole if whole else 1.0,
        recall=covered / planted if planted else 1.0,
        false_alarms=sum(hours == 0 for hours in hit),
        planted_usd=None if usd is None else Decimal(f"{usd:.2f}"),
    )


def _mark_unused(course: Course, gpus: Doubles, idle: Marks) -> Marks:
    """Return the long runs in which a device does nothing that its owner needs."""
    others = (course.gpus > 0) & ~course.idle
    marks = idle & (gpus > 0) & (~course.harm | others)
    for begin, end in list_runs(marks):
        if (end - begin) * TICK_S < MIN_IDLE_S:
            marks[begin:end] = False
    return marks


def _mark_findings(ticks: Doubles, findings: Iterable[Finding], device: str) -> Marks:
    marks = np.zeros(len(ticks), np.bool_)
    for finding in findings:
        if device in finding.details.get("devices", (device,)):
            marks[_span(ticks, finding)] = True
    return marks


def _sum_true_hours(
    ticks: Doubles, courses: Mapping[Owner, Course], owner: Owner, finding: Finding
) -> float:
    """Return the GPU-hours of a finding that were truly idle."""
    course = courses.get(owner)
    if course is None:
        return 0.0
    span = _span(ticks, finding)
    devices = finding.details.get("devices", tuple(course.by_device))
    held_devices = [course.by_device[d] for d in devices if d in course.by_device]
    hours = sum(convert_hours(gpus[span][idle[span]]) for gpus, idle in held_devices)
    return min(hours, finding.gpu_hours)


def _span(ticks: Doubles, finding: Finding) -> slice:
    edges = [finding.window.start.timestamp(), finding.window.end.timestamp()]
    begin, end = np.searchsorted(ticks, edges).tolist()
    return slice(begin, end)


def convert_hours(gpus: Doubles) -> float:
    """Return GPU-hours from the GPUs held at each tick."""
    return float(gpus.sum()) * TICK_S / HOUR_S
