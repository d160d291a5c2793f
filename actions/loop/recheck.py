"""The last reading of every signal, just before an act: is anything active, is anything old?

A verdict is about a stretch of hours: a terminal that was used a minute ago is lost in its mean, or
ends the stretch a minute early. Whoever is about to stop something asks the last reading alone:

    active      one reading is enough to leave the workload alone
    stale       a signal that spoke before must speak again, within its interval and 30 s
    unanswered  a source that was to be read again and did not answer
"""

from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib.resources import files
from typing import Any

import msgspec

from fallow.acting import Facts
from fallow.seams import Views
from fallow.window import format_duration

EPSILON = 1e-6
LATE = timedelta(seconds=30)
"""How much later than its interval a reading may be (telemetry-and-waste.md#safety, clock skew)."""
SKEW = timedelta(seconds=30)
"""Activity that a clock of another host dates so much before the stretch belongs to it."""
HOST_SHARE = 0.05
"""Cores per requested core at or below which a pod is quiescent.

Source: telemetry-and-waste.md#idle, K3.
"""
BYTES_S = 10_000
"""Network or file system bytes a second from which a pod is active.

Source: telemetry-and-waste.md#idle, K3.
"""
LOOKBACK = timedelta(days=1)
ALLOCATED = timedelta(minutes=10)
NOTEBOOK, TRAFFIC = frozenset({"kernels", "terminals"}), frozenset({"network", "file writes"})
EXPORTERS, PODS = "exporters", "/api/v1/pods"
WORDS = {"kernels": "kernel", "terminals": "terminal"}


class Reading(msgspec.Struct, frozen=True):
    """What one source last said about one device or pod."""

    signal: str
    """activity (0-1), power (W), CPU (cores), network, file writes (B/s), requests (1/s), kernels
    (busy ones), terminals"""
    about: str
    ts: datetime
    """Until when it speaks."""
    interval_s: float
    value: float | None = None
    active_at: datetime | None = None
    """When a kernel or terminal was last active."""
    cores: float | None = None
    """CPU that the pod requests."""
    source: str | None = None
    """Collector of a device's sample."""


class Limits(msgspec.Struct, frozen=True):
    """From where on a reading is activity."""

    activity: float
    host_cores: float
    """Cores above which a pod is active however many it requests, sidecars apart."""
    recent: timedelta
    """Activity of a kernel or terminal counts for so long: the least duration of a verdict."""
    notebook_s: float = 60.0
    """How often notebook servers are read."""


class Recheck(msgspec.Struct, frozen=True):
    """Why a workload is left alone, in words; empty = nothing says so."""

    active: tuple[str, ...] = ()
    stale: tuple[str, ...] = ()


def readings(views: Views, facts: Facts, now: datetime, limits: Limits) -> list[Reading]:
    """Return the last reading of each signal that spoke during the case's stretch."""
    whom, window = facts.finding.subject, facts.finding.window
    named = facts.finding.details.get("devices")
    asked = {
        "cluster": whom.cluster,
        "namespace": whom.namespace,
        "kind": whom.workload_kind,
        "workload": whom.workload,
        "pods": [p.pod for p in facts.pods or ()],
        "devices": [str(d) for d in named] if isinstance(named, (list, tuple)) else [],
        "since": max(window.start, now - LOOKBACK),
        "held_since": now - ALLOCATED,
        "until": now,
        "notebook_s": limits.notebook_s,
    }
    return [_reading(row) for row in views.query(_sql("recheck"), asked).to_pylist()]


def judged(said: Iterable[Reading], facts: Facts, now: datetime, limits: Limits) -> Recheck:
    """Judge readings of just before `now`: a pure function; texts in the order of the readings.

    A signal that spoke in the stretch and is silent now is stale, whether or not the verdict needed
    it: why it fell silent is not known.
    """
    active, stale = [], []
    for reading in said:
        if why := _active(reading, facts, now, limits):
            active.append(why)
        age_s = int((now - reading.ts).total_seconds())
        if age_s > reading.interval_s + LATE.total_seconds():
            old = format_duration(age_s)
            stale.append(f"the last reading of {reading.signal} is {old} old ({reading.about})")
    return Recheck(tuple(active), tuple(stale))


def unanswered(
    views: Views,
    said: Iterable[Reading],
    since: datetime,
    *,
    cluster: str,
    servers: Collection[str] = (),
) -> tuple[str, ...]:
    """Return the sources of a case that did not answer when they were read again, and why.

    Prometheus and the list of pods are sources of every case, notebook servers only those at the
    addresses `servers`. Of exporters nobody knows which one shows a device: where one does not
    answer, a device that none of the others showed is its.
    """
    asked = {"cluster": cluster, "since": since}
    failed = views.query(_sql("unanswered"), asked).to_pylist()
    unseen = any(r.source == EXPORTERS and r.ts < since for r in said)
    return tuple(
        f"{row['collector']} {row['target']} did not answer: {row['error'] or 'no reason given'}"
        for row in failed
        if _counts(row["collector"], row["target"], servers, unseen=unseen)
    )


def _counts(collector: str, target: str, servers: Collection[str], *, unseen: bool) -> bool:
    if collector == "jupyter":
        return target.rstrip("/") in {s.rstrip("/") for s in servers}
    if collector == EXPORTERS:
        return unseen
    return collector == "prometheus" or target.partition("?")[0].endswith(PODS)


def _active(reading: Reading, facts: Facts, now: datetime, limits: Limits) -> str | None:
    if reading.signal in NOTEBOOK:
        return _notebook(reading, facts, now, limits)
    if reading.value is None:
        return None
    return _figure(reading, reading.value, facts, limits)


def _figure(reading: Reading, value: float, facts: Facts, limits: Limits) -> str | None:
    """Say what a figure shows; None = it is at or below its limit."""
    about, text = reading.about, None
    if reading.signal == "activity" and value > limits.activity + EPSILON:
        text = f"{about} was seen at work ({value:.0%}) at {reading.ts:%H:%M:%S}"
    elif reading.signal == "power":
        text = _power(value, about, facts)
    elif reading.signal == "CPU" and value > (most := _cores(reading, limits)) + EPSILON:
        text = f"{about} uses {value:.2g} cores, more than {most:g}"
    elif reading.signal == "requests" and value > 0:
        text = f"{about} serves {value:.2g} requests/s"
    elif reading.signal in TRAFFIC and value >= BYTES_S:
        text = f"{reading.signal} of {about}: {value / 1000:.0f} kB/s"
    return text


def _cores(reading: Reading, limits: Limits) -> float:
    return min(HOST_SHARE * max(1.0, reading.cores or 1.0), limits.host_cores)


def _power(watts: float, device: str, facts: Facts) -> str | None:
    band = facts.finding.details.get("idle_band_w")
    rule = facts.finding.details.get("rule")
    margin = rule.get("power_margin_w", 0.0) if isinstance(rule, dict) else 0.0
    if not isinstance(band, int | float) or watts <= band + margin:
        return None
    return f"{device} draws {watts:.0f} W, above its idle band of {band:.0f} W"


def _notebook(reading: Reading, facts: Facts, now: datetime, limits: Limits) -> str | None:
    word, last = WORDS[reading.signal], reading.active_at
    if reading.value:
        return f"a {word} of {reading.about} is busy"
    if last is None:
        return None
    begun = facts.finding.window.start
    if last <= max(begun + SKEW, now - limits.recent):
        return None
    ago = format_duration(max((now - last).total_seconds(), 0.0))
    return f"{word} active {ago} ago ({reading.about})"


def _reading(row: Mapping[str, Any]) -> Reading:
    moments = {n: row[n].replace(tzinfo=UTC) for n in ("ts", "active_at") if row[n] is not None}
    return Reading(**{**row, **moments})


@cache
def _sql(name: str) -> str:
    return files("actions.loop").joinpath(f"{name}.sql").read_text(encoding="utf-8")
