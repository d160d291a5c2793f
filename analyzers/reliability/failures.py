"""Find failures that lost work: the time, the cause, and the time from the first sign to recovery.

event ─┐   first sign ──► detected ──► decided ──► drained ──► restarted ──► replayed
pod   ─┼─► (event, XID)   deletion     replacement  pod gone    first work    work since the
XIDs  ─┘                  or end       was made                               last checkpoint
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Literal

import msgspec

from analyzers.reliability.rows import DeviceXid, FailureEvent, PodLifetime
from analyzers.workload_rows import Owner
from fallow.xids import get_xid_meaning

Place = tuple[str, str]
Cause = Literal["spot", "preemption", "node", "device", "application"]
TOGETHER = timedelta(minutes=10)
"""Pods of one workload that end within this failed together."""
BEFORE, AFTER = timedelta(minutes=20), timedelta(minutes=10)
"""An event explains a pod that ended at most `BEFORE` after it, or `AFTER` before it."""
EARLY = timedelta(minutes=5)
_ENDINGS: Mapping[str, Cause] = {"spot": "spot", "preemption": "preemption", "down": "node"}
LATEST = timedelta(days=1)
"""A pod that starts later does not replace the failed one."""
PREEMPTED = "Preempted"
"""Reason of the scheduler's event on a pod that is preempted for another."""
STEPS = ("detect", "decide", "drain", "restart")


class PodFailure(msgspec.Struct, frozen=True):
    """The end of a pod by a failure: its cause, and the first sign of it."""

    pod: PodLifetime
    end: datetime
    cause: Cause
    first: datetime


class FailedPod(msgspec.Struct, frozen=True):
    """A pod of a failure or its replacement, its GPUs, and its start."""

    pod: str
    who: int
    gpus: float
    start: datetime


class Failure(msgspec.Struct, frozen=True):
    """Pods of one workload that failed together, and the time to recovery."""

    owner: Owner
    at: datetime
    cause: Cause
    nodes: tuple[str, ...]
    gpus: float
    run_hours: float
    """How long the pods had run: the upper limit of the loss."""
    seconds: dict[str, float] | None
    """By step, from the first sign to the first work; None = no replacement started."""
    load_s: float
    """The part of the restart from a pod's start to its first work."""
    pods: tuple[FailedPod, ...]
    replacements: tuple[FailedPod, ...] = ()
    """In the order of their start; fewer than `pods` where not all have one."""


class FailureSigns(msgspec.Struct, frozen=True):
    """The events of nodes and pods, by cause: times in order."""

    nodes: dict[Place, list[tuple[datetime, str]]]
    pods: dict[tuple[str, str, str], list[tuple[datetime, str]]]
    devices: dict[Place, list[datetime]]


def sort_signs(
    events: Iterable[FailureEvent], causes: Mapping[str, str], xids: Iterable[DeviceXid]
) -> FailureSigns:
    """Sort events and XIDs by node, pod and device; `causes` has the cause of each reason."""
    nodes: dict[Place, list[tuple[datetime, str]]] = defaultdict(list)
    pods: dict[tuple[str, str, str], list[tuple[datetime, str]]] = defaultdict(list)
    devices: dict[Place, list[datetime]] = defaultdict(list)
    for event in events:
        cause = causes.get(event.reason)
        if event.kind == "Node" and cause in {"spot", "down"}:
            nodes[event.cluster, event.name].append((event.ts, cause))
        elif event.kind == "Pod" and cause == "evicted":
            pods[event.cluster, event.namespace or "", event.name].append((event.ts, "down"))
        elif event.kind == "Pod" and event.reason == PREEMPTED:
            name = event.cluster, event.namespace or "", event.name
            pods[name].append((event.ts, "preemption"))
    for xid in xids:
        meaning = get_xid_meaning(xid.code)
        bad = meaning.severity in {"fatal", "warn"} and meaning.class_ not in {"application", "log"}
        if bad and not xid.older:
            devices[xid.cluster, xid.node].append(xid.at)
    return FailureSigns(dict(nodes), dict(pods), dict(devices))


def find_failures(
    pods: Sequence[PodLifetime], signs: FailureSigns, loading: Mapping[Owner, float]
) -> tuple[list[Failure], dict[Place, list[datetime]]]:
    """Return the failures in order, and the times at which pods failed on each node.

    `loading` is how long a pod of a workload takes from its start to its first work, seconds.
    """
    by_owner: dict[Owner, list[PodLifetime]] = defaultdict(list)
    for pod in (_set_eviction_end(pod, signs) for pod in pods):
        by_owner[pod.owner].append(pod)
    failures: list[Failure] = []
    struck: dict[Place, list[datetime]] = defaultdict(list)
    for owner, lifetimes in by_owner.items():
        failed = (_find_failure(pod, signs) for pod in lifetimes)
        bad = sorted((f for f in failed if f), key=lambda f: (f.end, f.pod.pod))
        starts = sorted(lifetimes, key=lambda pod: (pod.start, pod.pod))
        for group in _group_failures(bad):
            failures.append(_build_failure(owner, group, starts, loading.get(owner, 0.0)))
            for failure in group:
                struck[failure.pod.cluster, failure.pod.node].append(failure.end)
    return sorted(failures, key=lambda f: (f.at, f.owner)), dict(struck)


def count_incidents(failed: Sequence[Failure]) -> int:
    """Count the failures of nodes: all workloads that one failure stops are one incident.

    Not counted: errors of the application, a pod that was preempted for another, and a spot node
    that its cloud reclaims (the `spot` analyzer measures these).
    """
    last: dict[Place, datetime] = {}
    count = 0
    for failure in failed:
        if failure.cause in {"application", "spot", "preemption"}:
            continue
        places = [(failure.owner[0], node) for node in failure.nodes]
        count += any(failure.at - last.get(p, datetime.min) > TOGETHER for p in places)  # noqa: DTZ901
        last.update(dict.fromkeys(places, failure.at))
    return count


def _find_failure(pod: PodLifetime, signs: FailureSigns) -> PodFailure | None:
    """Return why a pod ended, and the first sign of it; None = normal end, or unknown."""
    end, place = pod.ended, (pod.cluster, pod.node)
    if end is None or pod.phase == "Succeeded":
        return None
    evictions = [*signs.nodes.get(place, ()), *signs.pods.get(_get_pod_key(pod), ())]
    near = sorted((at, why) for at, why in evictions if end - BEFORE <= at <= end + AFTER)
    if near:
        at, why = min(near, key=lambda item: (item[1] == "down", item[0]))
        return PodFailure(pod, end, _ENDINGS[why], min(at, end))
    if pod.phase != "Failed":
        return None
    hours = signs.devices.get(place, ())
    # XIDs have a resolution of one hour.
    near_xid = any(at - EARLY <= end < at + timedelta(hours=1) + AFTER for at in hours)
    return PodFailure(pod, end, "device" if near_xid else "application", end)


def _set_eviction_end(pod: PodLifetime, signs: FailureSigns) -> PodLifetime:
    """Set the end of an evicted pod to the time of its event: infrequent polls see it too late."""
    until = pod.ended
    if until is None or pod.phase in {"Succeeded", "Failed"}:
        return pod
    evictions = [at for at, _ in signs.pods.get(_get_pod_key(pod), ()) if pod.start < at <= until]
    return msgspec.structs.replace(pod, ended=max(evictions)) if evictions else pod


def _get_pod_key(pod: PodLifetime) -> tuple[str, str, str]:
    return pod.cluster, pod.namespace, pod.pod


def _group_failures(bad: Sequence[PodFailure]) -> Iterable[list[PodFailure]]:
    group: list[PodFailure] = []
    for failure in bad:
        if group and failure.end - group[-1].end > TOGETHER:
            yield group
            group = []
        group.append(failure)
    if group:
        yield group


def _build_failure(
    owner: Owner, group: Sequence[PodFailure], starts: Sequence[PodLifetime], load_s: float
) -> Failure:
    pods = [failure.pod for failure in group]
    order: tuple[Cause, ...] = ("spot", "preemption", "node", "device", "application")
    cause = min((failure.cause for failure in group), key=order.index)
    first = min(failure.first for failure in group)
    ends = [failure.end for failure in group]
    last_end = max(ends)
    names = {pod.pod for pod in pods if pod.start <= first}
    at = bisect_left([pod.start for pod in starts], min(ends) - EARLY)
    after = [
        pod
        for pod in starts[at:]
        if pod.start > first
        and pod.start - last_end <= LATEST
        and (pod.pod not in names or pod.start >= last_end)
    ][: len(pods)]
    return Failure(
        owner=owner,
        at=first,
        cause=cause,
        nodes=tuple(sorted({pod.node for pod in pods})),
        gpus=float(sum(pod.gpus for pod in pods)),
        run_hours=max((first - pod.start).total_seconds() / 3600 for pod in pods),
        seconds=_split_recovery(group, after, first, load_s) if after else None,
        load_s=load_s,
        pods=tuple(map(_build_pod, pods)),
        replacements=tuple(map(_build_pod, after)),
    )


def _build_pod(pod: PodLifetime) -> FailedPod:
    return FailedPod(pod.pod, pod.who, pod.gpus, pod.start)


def _split_recovery(
    group: Sequence[PodFailure], after: Sequence[PodLifetime], first: datetime, load_s: float
) -> dict[str, float]:
    """Split the time from the first sign to the first work; the parts sum to it."""
    last_end = max(failure.end for failure in group)
    deletions = [failure.pod.deleted_at for failure in group]
    deleted = min(
        (at for at in deletions if at and at >= first),
        default=min(failure.end for failure in group),
    )
    deleted = min(max(deleted, first), last_end)
    created = min(pod.created_at or pod.start for pod in after)
    begun = max(pod.start for pod in after)
    created = min(max(created, deleted), max(begun, deleted))
    drained = min(max(last_end, deleted), max(begun, deleted))
    return {
        "detect": (deleted - first).total_seconds(),
        "drain": (drained - deleted).total_seconds(),
        "decide": max((created - drained).total_seconds(), 0.0),
        "restart": max((begun - max(created, drained)).total_seconds(), 0.0) + load_s,
    }
