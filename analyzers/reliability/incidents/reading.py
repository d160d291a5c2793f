"""Compute the incidents of a window from the tables: signals, fusion, verdict, what was lost.

sample, event, pod, device, progress_sample, findings of `stalled` ──► signals ──► fusion.py
                                           work_lost, pod, event ──► Incident ◄── judge.py
"""

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta

import msgspec
import polars as pl

from analyzers.checkpoints import WORKLOAD, find_write_bursts, parse_interval
from analyzers.interruptions import read_causes
from analyzers.reliability.clocks import compute_mask
from analyzers.reliability.failures import Failure, find_failures, sort_signs
from analyzers.reliability.incidents import rows as incident_rows
from analyzers.reliability.incidents.device_signals import (
    PodOwners,
    find_failed_holders,
    list_counter_signals,
    list_gone_signals,
    list_heat_signals,
    list_xid_signals,
)
from analyzers.reliability.incidents.fusion import fuse_signals
from analyzers.reliability.incidents.judge import ENDINGS, judge_signals
from analyzers.reliability.incidents.process_signals import (
    STANDS_STILL,
    list_event_signals,
    list_process_signals,
    list_progress_signals,
    list_request_signals,
    list_stall_signals,
)
from analyzers.reliability.incidents.records import Incident, IncidentVerdict, LostHours, Signal
from analyzers.reliability.incidents.tables import read_event_signals
from analyzers.reliability.rows import (
    FailureWorkLost,
    PodLifetime,
    list_lifetimes,
    read_events,
    read_load_times,
    read_work_lost,
    read_xids,
)
from analyzers.rows import read_bursts, read_lifetimes
from analyzers.workload_rows import Owner
from fallow.models import Finding
from fallow.protocols import Views
from fallow.settings.reliability import ReliabilitySettings
from fallow.window import Window

NEAR = timedelta(minutes=10)


class SiteEvidence(msgspec.Struct, frozen=True):
    """What all incidents of a window are judged with."""

    pods: Sequence[PodLifetime]
    failures: Mapping[Owner, Sequence[Failure]]
    lost: Mapping[Owner, Sequence[FailureWorkLost]]
    checkpoints: frozenset[Owner]
    """Workloads with a known checkpoint."""
    models: Mapping[tuple[str, str], str]


def read_incidents(
    views: Views, window: Window, settings: ReliabilitySettings, stalls: Iterable[Finding]
) -> list[Incident]:
    """Return the incidents of a window, oldest first.

    Read: sample, device, event, pod, node, progress_sample, pod_sample, work_lost. `stalls` are the
    findings of the analyzer `stalled` in the window.
    """
    bounds = window.bounds()
    frame = read_lifetimes(views, bounds)
    pods = list_lifetimes(frame)
    owners = {(p.cluster, p.namespace, p.pod): p.owner for p in pods}
    signals = _list_signals(views, bounds, settings, owners, stalls)
    if not signals:
        return []
    who = {p.who for p in pods if p.owner in {s.owner for s in signals}}
    moves = incident_rows.read_progress_moves(views, bounds, sorted(who))
    progress = list(list_progress_signals(moves, owners, signals))
    evidence = _read_evidence(views, window, settings, frame, pods)
    signals = [*signals, *progress, *_list_lost_pods(evidence)]
    visible = [s for s in signals if s.known_at <= bounds["until"]]
    groups = fuse_signals(_add_nodes(visible, pods))
    return sorted((_build(group, evidence) for group in groups), key=lambda i: (i.start, i.id))


def _list_signals(
    views: Views,
    bounds: Mapping[str, datetime],
    settings: ReliabilitySettings,
    owners: PodOwners,
    stalls: Iterable[Finding],
) -> list[Signal]:
    reasons = sorted({row.reason for row in read_event_signals()})
    kinds = sorted({row.kind for row in read_event_signals()})
    zones = incident_rows.read_node_zones(views)
    events = incident_rows.read_incident_events(views, bounds, reasons, kinds)
    hot = incident_rows.read_hot_stretches(
        views, bounds, compute_mask(), heat=compute_mask("heat"), power=compute_mask("power")
    )
    ended = [*list_process_signals(incident_rows.read_ended_processes(views, bounds))]
    xids = find_failed_holders(incident_rows.read_xid_changes(views, bounds), ended, owners)
    return [
        *list_xid_signals(xids, owners),
        *list_counter_signals(incident_rows.read_counter_growth(views, bounds), owners),
        *list_heat_signals(hot, settings.slow_ratio),
        *ended,
        *list_event_signals(events, owners, zones),
        *list_stall_signals(stalls),
        *list_request_signals(
            incident_rows.read_standing_requests(views, bounds, STANDS_STILL), owners
        ),
        *list_gone_signals(incident_rows.read_gone_devices(views, bounds), owners),
    ]


def _list_lost_pods(evidence: SiteEvidence) -> Iterator[Signal]:
    """Yield the pods that a node took with it, also where no event names them."""
    ended = {(p.owner, p.pod, p.start): p.ended for p in evidence.pods}
    for owner, failures in evidence.failures.items():
        for failure in failures:
            if failure.cause != "node":
                continue
            ends = [ended.get((owner, p.pod, p.start)) for p in failure.pods]
            detected_at = max((at for at in ends if at is not None), default=failure.at)
            for node in failure.nodes:
                text = f"{len(failure.pods)} of its pods ended with their node"
                yield Signal(
                    "pods_lost", failure.at, failure.at, detected_at, owner[0], text, "pod",
                    owner, node, "", failure.pods[0].pod,
                )  # fmt: skip


def _add_nodes(signals: Sequence[Signal], pods: Sequence[PodLifetime]) -> list[Signal]:
    """Return the signals with the nodes of their pods."""
    node_of = {(p.cluster, p.owner, p.pod): p.node for p in pods}
    added = []
    for signal in signals:
        if signal.pod and not signal.node and signal.owner is not None:
            node = node_of.get((signal.cluster, signal.owner, signal.pod), "")
            added.append(msgspec.structs.replace(signal, node=node))
        else:
            added.append(signal)
    return added


def _read_evidence(
    views: Views,
    window: Window,
    settings: ReliabilitySettings,
    frame: pl.DataFrame,
    pods: Sequence[PodLifetime],
) -> SiteEvidence:
    bounds = window.bounds()
    events, xids = read_events(views, bounds, list(read_causes())), read_xids(views, bounds)
    signs = sort_signs(events, read_causes(), xids)
    failures, _ = find_failures(pods, signs, read_load_times(views, bounds))
    by_owner: dict[Owner, list[Failure]] = defaultdict(list)
    for failure in failures:
        by_owner[failure.owner].append(failure)
    lost: dict[Owner, list[FailureWorkLost]] = defaultdict(list)
    for row in read_work_lost(views, bounds):
        lost[row.owner].append(row)
    return SiteEvidence(
        pods, by_owner, lost, _find_checkpointed(views, bounds, settings, frame), {}
    )


def _find_checkpointed(
    views: Views,
    bounds: Mapping[str, datetime],
    settings: ReliabilitySettings,
    frame: pl.DataFrame,
) -> frozenset[Owner]:
    """Return the workloads that write checkpoints, or whose owner names their interval."""
    if frame.is_empty():
        return frozenset()
    saved = set(find_write_bursts(frame, read_bursts(views, bounds, settings.burst_bps)))
    annotated = frame.filter(pl.col("annotations").is_not_null())
    for row in annotated.select(*WORKLOAD, "annotations").iter_rows():
        if parse_interval(msgspec.json.decode(row[4]), []) is not None:
            saved.add(row[:4])
    return frozenset(saved)


def _build(group: Sequence[Signal], evidence: SiteEvidence) -> Incident:
    owners = tuple(sorted({s.owner for s in group if s.owner is not None}))
    start, end = min(s.at for s in group), max(s.end for s in group)
    failures = _list_failures_near(owners, start, end, evidence)
    seconds = [sum(f.seconds.values()) for f in failures if f.seconds is not None]
    recovered = bool(failures) and len(seconds) == len(failures)
    has_checkpoint = bool(owners) and all(owner in evidence.checkpoints for owner in owners)
    verdict = judge_signals(group, has_checkpoint=has_checkpoint, recovered=recovered)
    nodes = _list_distinct(s.node for s in group)
    affected = [p for p in evidence.pods if p.owner in owners and _is_alive(p, start)]
    rows = _list_work_lost(failures, evidence)
    waits = [row.recovering for row in rows if row.recovering is not None]
    return Incident(
        id=_compute_id(group[0]),
        cluster=group[0].cluster,
        start=start,
        end=end,
        known_at=_find_known(group, verdict, has_checkpoint=has_checkpoint, recovered=recovered),
        verdict=verdict,
        signals=tuple(group),
        owners=owners,
        nodes=nodes,
        devices=_list_distinct(s.device for s in group),
        models=(),
        gpus=float(sum(p.gpus for p in affected)),
        lost=_sum_lost(group, failures, rows, affected),
        recovery_s=max(seconds, default=None) if recovered else None,
        recovery_gpu_hours=round(sum(waits), 6) if 0 < len(waits) == len(failures) else None,
    )


def _compute_id(first: Signal) -> str:
    """Return the id of the incident with this first sign: later ones do not change it."""
    place = (first.owner, first.pod) if first.pod or first.owner else first.node
    sign = (first.cluster, first.name, first.at.isoformat(), first.device, place)
    return hashlib.sha256(repr(sign).encode()).hexdigest()[:12]


def _list_failures_near(
    owners: Iterable[Owner], start: datetime, end: datetime, evidence: SiteEvidence
) -> list[Failure]:
    """Return the failures of workloads from shortly before a time to shortly after another."""
    return [
        failure
        for owner in owners
        for failure in evidence.failures.get(owner, ())
        if start - NEAR <= failure.at <= end + NEAR
    ]


def _list_distinct(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted({name for name in names if name}))


def _find_known(
    group: Sequence[Signal], verdict: IncidentVerdict, *, has_checkpoint: bool, recovered: bool
) -> datetime:
    """Return when the signals that were known gave this verdict for the first time."""
    for detected_at in sorted({s.known_at for s in group}):
        seen = [s for s in group if s.known_at <= detected_at]
        early = judge_signals(seen, has_checkpoint=has_checkpoint, recovered=recovered)
        if (early.cause, early.step) == (verdict.cause, verdict.step):
            return detected_at
    return max(s.known_at for s in group)


def _is_alive(pod: PodLifetime, at: datetime) -> bool:
    return pod.start <= at + NEAR and (pod.ended is None or pod.ended >= at - NEAR)


def _list_work_lost(failures: Sequence[Failure], evidence: SiteEvidence) -> list[FailureWorkLost]:
    return [
        row
        for failure in failures
        for row in evidence.lost.get(failure.owner, ())
        if row.failed_at == failure.at
    ]


def _sum_lost(
    group: Sequence[Signal],
    failures: Sequence[Failure],
    rows: Sequence[FailureWorkLost],
    affected: Sequence[PodLifetime],
) -> LostHours:
    """Return the work that an incident lost, as `work_lost` has it; without a row it is unknown.

    Where nothing ended and progress goes on, nothing is lost.
    """
    names = {s.name for s in group}
    if "progress_advances" in names and not failures and not names & ENDINGS:
        return LostHours(0.0, "measured", 0.0)
    end = max(s.end for s in group)
    hours = [(min(p.ended or end, end) - p.start) / timedelta(hours=1) for p in affected]
    most = sum(p.gpus * max(h, 0.0) for p, h in zip(affected, hours, strict=True))
    if len(rows) < max(len(failures), 1):
        return LostHours(None, "unknown", round(most, 6) if affected else None)
    lost = sum(row.gpu_hours for row in rows)
    measured = all(row.measured for row in rows)
    return LostHours(
        round(lost, 6), "measured" if measured else "estimated", round(max(most, lost), 6)
    )
