"""Read the last sample of every signal just before an act: is any active, is any stale?

A verdict covers a stretch of hours. Terminal input of a minute ago is lost in its mean, or ends the
stretch a minute early. Before a stop, this module therefore judges the last reading alone:

    active      one reading is enough to leave the workload alone
    stale       a signal with earlier readings has none within its interval and 30 s, or nothing
                tells since the minimum duration whether a device's power is of now
    unanswered  a source that was to be read again did not answer
"""

from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

import msgspec

from actions.loop.breaker import EPSILON
from fallow.action_models import Facts
from fallow.idle_details import IdleDetails, read_idle_details
from fallow.protocols import Views
from fallow.quiescence import BYTES_S, CPU_SHARE, IO_PRESSURE
from fallow.window import format_duration
from warehouse.signals.frozen import is_still
from warehouse.steps import ACTIVE_SAMPLE, NOTEBOOK_ACTIVITY, SERVING_LOAD, compose_query, load_step

MAX_DELAY = timedelta(seconds=30)
"""Maximum delay of a reading beyond its interval (telemetry-and-waste.md#safety, clock skew)."""
SKEW = timedelta(seconds=30)
"""Activity that another host's clock dates this long before the stretch counts as part of it."""
LOOKBACK = timedelta(days=1)
ALLOCATED = timedelta(minutes=10)
NOTEBOOK, TRAFFIC = frozenset({"kernels", "terminals"}), frozenset({"network", "files"})
EXPORTERS, PODS = "exporters", "/api/v1/pods"
SINGULAR = {"kernels": "kernel", "terminals": "terminal"}


class SignalReading(msgspec.Struct, frozen=True):
    """The last reading of one source about one device or pod."""

    signal: str
    """activity (0-1), power (W), CPU (cores), network, files (B/s), I/O pressure (0-1), requests
    (1/s), requests held (running, waiting, swapped), kernels (busy ones; null: unknown),
    terminals"""
    about: str
    ts: datetime
    """Until when the reading is valid."""
    interval_s: float
    value: float | None = None
    active_at: datetime | None = None
    """When a kernel or terminal was last active."""
    cores: float | None = None
    """CPU that the pod requests."""
    source: str | None = None
    """Collector of a device's sample."""
    changes: int | None = None
    """Of power: what changed within `ActivityLimits.recent` (`frozen.is_still`)."""


class ActivityLimits(msgspec.Struct, frozen=True):
    """The limits above which a reading counts as activity."""

    activity: float
    host_cores: float
    """Cores above which a pod is active, whatever it requests; sidecars are excluded."""
    recent: timedelta
    """Activity of a kernel or terminal counts for this time, and so does a change that shows live
    telemetry: the minimum duration of a verdict."""
    notebook_s: float = 60.0
    """Seconds between two reads of a notebook server."""


class Recheck(msgspec.Struct, frozen=True):
    """Why a workload is left alone, as text; empty = there is no reason."""

    active: tuple[str, ...] = ()
    stale: tuple[str, ...] = ()


def read_signals(
    views: Views, facts: Facts, now: datetime, limits: ActivityLimits
) -> list[SignalReading]:
    """Return the last reading of each signal that had readings during the case's stretch."""
    subject, window = facts.finding.subject, facts.finding.window
    parameters = {
        "cluster": subject.cluster,
        "namespace": subject.namespace,
        "kind": subject.workload_kind,
        "workload": subject.workload,
        "pods": [p.pod for p in facts.pods or ()],
        "devices": [*read_idle_details(facts.finding).devices],
        "since": max(window.start, now - LOOKBACK),
        "held_since": now - ALLOCATED,
        "live_since": now - limits.recent,
        "until": now,
        "notebook_s": limits.notebook_s,
    }
    return [_to_reading(row) for row in views.query(_load_sql(), parameters).to_pylist()]


def judge_readings(
    signal_readings: Iterable[SignalReading], facts: Facts, now: datetime, limits: ActivityLimits
) -> Recheck:
    """Judge readings of just before `now`; a pure function.

    The texts are in the order of the readings. A signal that had readings in the stretch and has
    none now is stale, whether or not the verdict needed it: the cause is unknown. So is power that
    stands still, unless host and intent decided without it.
    """
    details = read_idle_details(facts.finding)
    needs_power = (details.signals.host, details.signals.intent) != ("idle", "idle")
    active, stale = [], []
    for reading in signal_readings:
        if why := _explain_active(reading, facts, now, limits):
            active.append(why)
        if why := explain_age(reading.signal, reading.about, now - reading.ts, reading.interval_s):
            stale.append(why)
        if reading.signal == "kernels" and reading.value is None:
            stale.append(f"whether a kernel or terminal of {reading.about} is active is not known")
        if needs_power and reading.changes is not None and is_still(reading.changes, readings=1):
            stale.append(f"the power of {reading.about} stands still, and may be frozen")
    return Recheck(tuple(active), tuple(stale))


def explain_age(signal: str, about: str, age: timedelta, interval_s: float) -> str | None:
    """Return that a reading is older than its interval and `MAX_DELAY`; None = it is not."""
    age_s = int(age.total_seconds())
    if age_s <= interval_s + MAX_DELAY.total_seconds():
        return None
    return f"the last reading of {signal} is {format_duration(age_s)} old ({about})"


def find_unanswered(
    views: Views,
    signal_readings: Iterable[SignalReading],
    since: datetime,
    *,
    cluster: str,
    servers: Collection[str] = (),
) -> tuple[str, ...]:
    """Return the sources of a case that did not answer when they were read again, and why.

    Prometheus and the list of pods are sources of every case. Notebook servers are sources only at
    the addresses `servers`. It is unknown which exporter reports a device: where one exporter does
    not answer, every device that no other exporter reported counts as its own.
    """
    parameters = {"cluster": cluster, "since": since}
    failed = views.query(load_step("unanswered", "actions.loop"), parameters).to_pylist()
    has_unseen = any(r.source == EXPORTERS and r.ts < since for r in signal_readings)
    return tuple(
        f"{row['collector']} {row['target']} did not answer: {row['error'] or 'no reason given'}"
        for row in failed
        if _is_relevant(row["collector"], row["target"], servers, unseen=has_unseen)
    )


def _is_relevant(collector: str, target: str, servers: Collection[str], *, unseen: bool) -> bool:
    if collector == "jupyter":
        return target.rstrip("/") in {s.rstrip("/") for s in servers}
    if collector == EXPORTERS:
        return unseen
    return collector == "prometheus" or target.partition("?")[0].endswith(PODS)


def _explain_active(
    reading: SignalReading, facts: Facts, now: datetime, limits: ActivityLimits
) -> str | None:
    if reading.signal in NOTEBOOK:
        return _explain_notebook(reading, facts, now, limits)
    if reading.value is None:
        return None
    return _explain_value(reading, reading.value, facts, limits)


def _explain_value(
    reading: SignalReading, value: float, facts: Facts, limits: ActivityLimits
) -> str | None:
    """Return what a value shows; None = it is at or below its limit."""
    about, text = reading.about, None
    if reading.signal == "activity" and value > limits.activity + EPSILON:
        text = f"{about} was seen at work ({value:.0%}) at {reading.ts:%H:%M:%S}"
    elif reading.signal == "power":
        text = _explain_power(value, about, read_idle_details(facts.finding))
    elif reading.signal == "CPU" and value > (limit := _limit_cores(reading, limits)) + EPSILON:
        text = f"{about} uses {value:.2g} cores, more than {limit:g}"
    elif reading.signal == "requests" and value > 0:
        text = f"{about} serves {value:.2g} requests/s"
    elif reading.signal == "requests held" and value > 0:
        text = f"{value:.0f} requests run or wait at {about}"
    elif reading.signal == "I/O pressure" and value >= IO_PRESSURE:
        text = f"tasks of {about} wait for I/O {value:.0%} of the time"
    elif reading.signal in TRAFFIC and value >= BYTES_S:
        text = f"{reading.signal} of {about}: {value / 1000:.0f} kB/s"
    return text


def _limit_cores(reading: SignalReading, limits: ActivityLimits) -> float:
    return min(CPU_SHARE * max(1.0, reading.cores or 1.0), limits.host_cores)


def _explain_power(watts: float, device: str, details: IdleDetails) -> str | None:
    """Return why a device's power shows work; None = it does not, or no idle band is known."""
    band = details.idle_band_w
    if band is None or watts <= band + details.rule.power_margin_w:
        return None
    return f"{device} draws {watts:.0f} W, above its idle band of {band:.0f} W"


def _explain_notebook(
    reading: SignalReading, facts: Facts, now: datetime, limits: ActivityLimits
) -> str | None:
    noun, last = SINGULAR[reading.signal], reading.active_at
    if reading.value:
        return f"a {noun} of {reading.about} is busy"
    if last is None:
        return None
    start = facts.finding.window.start
    if last <= max(start + SKEW, now - limits.recent):
        return None
    ago = format_duration(max((now - last).total_seconds(), 0.0))
    return f"{noun} active {ago} ago ({reading.about})"


def _to_reading(row: Mapping[str, Any]) -> SignalReading:
    times = {n: row[n].replace(tzinfo=UTC) for n in ("ts", "active_at") if row[n] is not None}
    return SignalReading(**{**row, **times})


@cache
def _load_sql() -> str:
    return compose_query(
        (ACTIVE_SAMPLE, SERVING_LOAD, NOTEBOOK_ACTIVITY, "recheck"), "actions.loop"
    )
