"""Find failures that lost work: the time, the cause, and the time from the first sign to recovery.

event ─┐   first sign ──► detected ──► decided ──► drained ──► restarted ──► replayed
pod   ─┼─► (event, XID)   deletion     replacement  pod gone    first work    work since the
XIDs  ─┘                  or end       was made                               last checkpoint
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal

import msgspec

from analyzers.checkpoints import WORKLOAD, Owner
from analyzers.reliability.devices import DeviceXid
from fallow.xids import xid_meaning

Cause = Literal["spot", "preemption", "node", "device", "application"]
Row = Mapping[str, Any]
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


class FailedPod(msgspec.Struct, frozen=True):
    """A pod of a failure, its GPUs, and its start."""

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


class FailureSigns(msgspec.Struct, frozen=True):
    """The events of nodes and pods, by cause: times in order."""

    nodes: dict[tuple[str, str], list[tuple[datetime, str]]]
    pods: dict[tuple[str, str, str], list[tuple[datetime, str]]]
    devices: dict[tuple[str, str], list[datetime]]


def sort_signs(
    events: Iterable[Row], causes: Mapping[str, str], xids: Iterable[DeviceXid]
) -> FailureSigns:
    """Sort events and XIDs by node, pod and device; `causes` has the cause of each reason."""
    nodes: dict[tuple[str, str], list[tuple[datetime, str]]] = defaultdict(list)
    pods: dict[tuple[str, str, str], list[tuple[datetime, str]]] = defaultdict(list)
    devices: dict[tuple[str, str], list[datetime]] = defaultdict(list)
    for row in events:
        cause = causes.get(row["reason"])
        if row["kind"] == "Node" and cause in {"spot", "down"}:
            nodes[row["cluster"], row["name"]].append((row["ts"], cause))
        elif row["kind"] == "Pod" and cause == "evicted":
            pods[row["cluster"], row["namespace"] or "", row["name"]].append((row["ts"], "down"))
        elif row["kind"] == "Pod" and row["reason"] == PREEMPTED:
            name = row["cluster"], row["namespace"] or "", row["name"]
            pods[name].append((row["ts"], "preemption"))
    for xid in xids:
        meaning = xid_meaning(xid.code)
        bad = meaning.severity in {"fatal", "warn"} and meaning.class_ not in {"application", "log"}
        if bad and not xid.older:
            devices[xid.cluster, xid.node].append(xid.at)
    return FailureSigns(dict(nodes), dict(pods), dict(devices))


def find_failures(
    pods: Sequence[Row], signs: FailureSigns, loading: Mapping[Owner, float]
) -> tuple[list[Failure], dict[tuple[str, str], list[datetime]]]:
    """Return the failures in order, and the times at which pods failed on each node.

    `loading` is how long a pod of a workload takes from its start to its first work, seconds.
    """
    by_owner: dict[Owner, list[Row]] = defaultdict(list)
    for row in (_set_eviction_end(row, signs) for row in pods):
        by_owner[tuple(row[name] for name in WORKLOAD)].append(row)
    failures: list[Failure] = []
    struck: dict[tuple[str, str], list[datetime]] = defaultdict(list)
    for owner, rows in by_owner.items():
        ended = [(row, *_find_cause(row, signs)) for row in rows if row["ended"] is not None]
        bad = sorted(
            ((row, cause, first) for row, cause, first in ended if cause and first),
            key=lambda item: (item[0]["ended"], item[0]["pod"]),
        )
        starts = sorted(rows, key=lambda row: (row["start"], row["pod"]))
        for group in _group_failures(bad):
            failures.append(_build_failure(owner, group, starts, loading.get(owner, 0.0)))
            for row, _, _ in group:
                struck[row["cluster"], row["node"]].append(row["ended"])
    return sorted(failures, key=lambda f: (f.at, f.owner)), dict(struck)


def _find_cause(row: Row, signs: FailureSigns) -> tuple[Cause | None, datetime | None]:
    """Return why a pod ended, and the first sign of it; None = normal end, or unknown."""
    if row["phase"] == "Succeeded":
        return None, None
    end, place = row["ended"], (row["cluster"], row["node"])
    evictions = [*signs.nodes.get(place, ()), *signs.pods.get(_get_pod_key(row), ())]
    near = sorted((at, why) for at, why in evictions if end - BEFORE <= at <= end + AFTER)
    if near:
        at, why = min(near, key=lambda item: (item[1] == "down", item[0]))
        return _ENDINGS[why], min(at, end)
    if row["phase"] != "Failed":
        return None, None
    hours = signs.devices.get(place, ())
    # XIDs have a resolution of one hour.
    near_xid = any(at - EARLY <= end < at + timedelta(hours=1) + AFTER for at in hours)
    return ("device" if near_xid else "application"), end


def _set_eviction_end(row: Row, signs: FailureSigns) -> Row:
    """Set the end of an evicted pod to the time of its event: infrequent polls see it too late."""
    until = row["ended"]
    if until is None or row["phase"] in {"Succeeded", "Failed"}:
        return row
    evictions = [
        at for at, _ in signs.pods.get(_get_pod_key(row), ()) if row["start"] < at <= until
    ]
    return {**row, "ended": max(evictions)} if evictions else row


def _get_pod_key(row: Row) -> tuple[str, str, str]:
    return row["cluster"], row["namespace"], row["pod"]


def _group_failures(
    bad: Sequence[tuple[Row, Cause, datetime]],
) -> Iterable[list[tuple[Row, Cause, datetime]]]:
    group: list[tuple[Row, Cause, datetime]] = []
    for item in bad:
        if group and item[0]["ended"] - group[-1][0]["ended"] > TOGETHER:
            yield group
            group = []
        group.append(item)
    if group:
        yield group


def _build_failure(
    owner: Owner,
    group: Sequence[tuple[Row, Cause, datetime]],
    starts: Sequence[Row],
    load_s: float,
) -> Failure:
    rows = [row for row, _, _ in group]
    order: tuple[Cause, ...] = ("spot", "preemption", "node", "device", "application")
    cause = min((why for _, why, _ in group), key=order.index)
    first = min(at for _, _, at in group)
    last_end = max(row["ended"] for row in rows)
    names = {row["pod"] for row in rows if row["start"] <= first}
    at = bisect_left([row["start"] for row in starts], min(row["ended"] for row in rows) - EARLY)
    after = [
        row
        for row in starts[at:]
        if row["start"] > first
        and row["start"] - last_end <= LATEST
        and (row["pod"] not in names or row["start"] >= last_end)
    ][: len(rows)]
    return Failure(
        owner=owner,
        at=first,
        cause=cause,
        nodes=tuple(sorted({row["node"] for row in rows})),
        gpus=float(sum(row["gpus"] for row in rows)),
        run_hours=max((first - row["start"]).total_seconds() / 3600 for row in rows),
        seconds=_split_recovery(rows, after, first, last_end, load_s) if after else None,
        load_s=load_s,
        pods=tuple(FailedPod(r["pod"], r["who"], float(r["gpus"]), r["start"]) for r in rows),
    )


def _split_recovery(
    rows: Sequence[Row], after: Sequence[Row], first: datetime, last_end: datetime, load_s: float
) -> dict[str, float]:
    """Split the time from the first sign to the first work; the parts sum to it."""
    deleted = min(
        (row["deleted_at"] for row in rows if row["deleted_at"] and row["deleted_at"] >= first),
        default=min(row["ended"] for row in rows),
    )
    deleted = min(max(deleted, first), last_end)
    created = min(row["created_at"] or row["start"] for row in after)
    begun = max(row["start"] for row in after)
    created = min(max(created, deleted), max(begun, deleted))
    drained = min(max(last_end, deleted), max(begun, deleted))
    return {
        "detect": (deleted - first).total_seconds(),
        "drain": (drained - deleted).total_seconds(),
        "decide": max((created - drained).total_seconds(), 0.0),
        "restart": max((begun - max(created, drained)).total_seconds(), 0.0) + load_s,
    }
