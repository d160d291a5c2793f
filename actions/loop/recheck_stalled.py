"""Read the last sample of every rank of a stalled job, and its progress, just before an act.

The recheck of idle workloads sees a hung job as busy: its devices spin. This recheck tests that
nothing has changed since the hang was judged:

    active      the last sample of a device shows work, a progress series moved since the hang
                began, or a pod writes as a checkpoint does
    stale       a device or a progress series of the evidence has no current sample
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from functools import cache

import msgspec

from actions.loop.breaker import EPSILON
from actions.loop.recheck import LOOKBACK, Recheck, SignalReading, explain_age
from fallow.action_models import Facts
from fallow.protocols import Views
from fallow.resources import read_text
from fallow.stalled_details import read_stalled_details
from warehouse.signals import SPIN

WORDS = {
    "device": "{about} was seen at work at {ts:%H:%M:%S}",
    "progress": "its progress went on ({about})",
    "file writes": "{about} writes files: it may be saving a checkpoint",
}


class StalledReading(msgspec.Struct, frozen=True):
    """The last reading of one device, one progress series or one pod's writes."""

    signal: str
    """device, progress or file writes"""
    about: str
    ts: datetime
    interval_s: float
    source: str | None
    is_active: bool


def read_stalled_readings(
    views: Views, facts: Facts, now: datetime, *, burst_bps: float
) -> list[StalledReading]:
    """Return the last reading of each device, progress series and host of a stalled job."""
    finding = facts.finding
    details = read_stalled_details(finding)
    since = details.progress and details.progress.since
    start = datetime.fromisoformat(since) if since else finding.window.start
    parameters = {
        "cluster": finding.subject.cluster,
        "namespace": finding.subject.namespace,
        "pods": [p.pod for p in facts.pods or ()],
        "devices": [*details.devices],
        "since": now - LOOKBACK,
        "still_since": start.astimezone(UTC).replace(tzinfo=None) if start.tzinfo else start,
        "until": now,
        "burst_bps": burst_bps,
        "tensor": SPIN["spin_tensor"] + EPSILON,
        "dram": SPIN["spin_dram"] + EPSILON,
        "sm": SPIN["spin_sm"] + EPSILON,
        "bps": SPIN["spin_bps"],
    }
    rows = views.query(_load_sql(), parameters).to_pylist()
    return [StalledReading(**{**row, "ts": row["ts"].replace(tzinfo=UTC)}) for row in rows]


def judge_stalled(readings: Iterable[StalledReading], facts: Facts, now: datetime) -> Recheck:
    """Judge readings of just before `now`: a pure function."""
    details = read_stalled_details(facts.finding)
    active, stale = [], []
    seen: set[str] = set()
    series = 0
    for reading in readings:
        if reading.signal == "device":
            seen.add(reading.about)
        series += reading.signal == "progress"
        if reading.is_active:
            active.append(WORDS[reading.signal].format(about=reading.about, ts=reading.ts))
        age = now - reading.ts
        why = explain_age(reading.signal, reading.about, age, reading.interval_s)
        if why and reading.signal != "file writes":
            stale.append(why)
    stale += [
        f"{device} of the hang has no sample" for device in details.devices if device not in seen
    ]
    if not details.devices:
        stale.append("the finding names no device of the hang")
    if details.progress and not series:
        stale.append("its progress, which stood still, is not reported any more")
    return Recheck(tuple(active), tuple(stale))


def convert_device_readings(readings: Iterable[StalledReading]) -> list[SignalReading]:
    """Return the readings of devices in the form that `recheck.find_unanswered` takes."""
    return [
        SignalReading("activity", r.about, r.ts, r.interval_s, source=r.source)
        for r in readings
        if r.signal == "device"
    ]


@cache
def _load_sql() -> str:
    return read_text("actions.loop", "recheck_stalled.sql")
