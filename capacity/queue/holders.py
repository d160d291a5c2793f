"""Read who holds which devices, whether they are idle, and what stopping them would lose.

Idle is what the ledger says: every device of the workload was in the state idle for all of its
newest hours, at least half an hour of them. A workload with a device that the ledger does not have
there is unknown and never idle.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any, Literal

import msgspec

from capacity.placement.fleet_state import (
    MICRO,
    FleetState,
    NodeKey,
    PodRecord,
    WorkloadKey,
    to_micros,
)
from capacity.placement.node_capacities import SHARED, STALE
from capacity.placement.pod_demand import DeviceType, FreeCapacity
from capacity.queue.records import WorkAtRisk
from fallow.checkpointing import INTERVAL, parse_interval_hours
from fallow.protections import parse_timestamp, read_annotations, read_stored_pod
from fallow.protocols import Views
from fallow.resources import read_text
from fallow.tolerances import read_tolerances

LEAST_IDLE_S = 1800.0
"""Seconds of the newest hours that the ledger must have of each device."""
LONGEST_WAIT = timedelta(days=7)
"""Idle hours are counted from this long ago at most."""
HOUR_US = 3600 * MICRO

NO_CHECKPOINTS: Mapping[WorkloadKey, datetime] = {}

Activity = Literal["idle", "partly_idle", "busy", "unknown"]


class DeviceHolder(msgspec.Struct, frozen=True):
    """A workload that holds devices, at one time."""

    key: WorkloadKey
    devices: tuple[tuple[NodeKey, DeviceType], ...]
    """Those that only it holds, on nodes without sharing, that telemetry shows."""
    gpus: float
    """What its pods request."""
    host: Mapping[NodeKey, tuple[int, int]]
    """Milli-CPU and bytes of its pods by node."""
    activity: Activity
    why: str
    priority: int | None
    """The highest of its pods; None = not known of one of them."""
    queue: str | None
    resources: Mapping[str, float]
    """Devices that its pods request, by resource."""
    lost: WorkAtRisk
    protected: str
    """What protects it from being stopped; empty = nothing."""

    @property
    def nodes(self) -> frozenset[NodeKey]:
        """Return the nodes on which it holds devices."""
        return frozenset(key for key, _ in self.devices)


class Holders:
    """The holders of every cluster at one time.

    `checkpoints`: when workloads were last seen to write one.
    """

    def __init__(
        self,
        views: Views,
        state: FleetState,
        now: datetime,
        checkpoints: Mapping[WorkloadKey, datetime] = NO_CHECKPOINTS,
    ) -> None:
        self._views, self._state, self._now, self._at = views, state, now, to_micros(now)
        self._checkpoints = checkpoints

    def list_in(self, cluster: str) -> Sequence[DeviceHolder]:
        """Return the workloads that hold devices in a cluster, by name."""
        return self._by_cluster.get(cluster, [])

    def count_idle_hours(self, key: WorkloadKey, since: datetime) -> float:
        """Return a workload's idle GPU-hours in whole hours after a time."""
        since_us = to_micros(since)
        return sum(h for at, h in self._idle_hours.get(key, ()) if at >= since_us)

    @cached_property
    def _by_cluster(self) -> dict[str, list[DeviceHolder]]:
        by_cluster: dict[str, list[DeviceHolder]] = {}
        pods: dict[WorkloadKey, list[PodRecord]] = {}
        for pod in self._state.all_pods:
            if pod.node and pod.begin < self._at <= pod.end and pod.phase not in _ENDED:
                pods.setdefault(pod.key, []).append(pod)
        for key, devices in sorted(self._list_devices().items()):
            by_cluster.setdefault(key[0], []).append(
                self._build_holder(key, devices, pods.get(key, []))
            )
        return by_cluster

    def _list_devices(self) -> dict[WorkloadKey, list[tuple[NodeKey, DeviceType, str, bool]]]:
        """Return the devices of each workload, and whether freeing it frees each of them."""
        stale = to_micros(self._now - STALE)
        by_key: dict[WorkloadKey, list[tuple[NodeKey, DeviceType, str, bool]]] = {}
        for node_key, listed in self._state.devices.items():
            node = self._state.nodes.get(node_key)
            for device in listed:
                name = device["device"]
                allocations = self._state.device_allocations_at((node_key[0], name), self._at)
                keys = {allocation.key for allocation in allocations}
                usable = (
                    len(keys) == 1
                    and device["last_us"] >= stale
                    and node is not None
                    and node.sharing not in SHARED
                )
                for key in keys:
                    by_key.setdefault(key, []).append(
                        (node_key, device["profile"] or "", name, usable)
                    )
        return by_key

    def _build_holder(
        self,
        key: WorkloadKey,
        devices: Sequence[tuple[NodeKey, DeviceType, str, bool]],
        pods: Sequence[PodRecord],
    ) -> DeviceHolder:
        activity, why = self._judge_activity(key, [name for _, _, name, _ in devices], pods)
        host: dict[NodeKey, tuple[int, int]] = {}
        resources: Counter[str] = Counter()
        for pod in pods:
            node_key = (key[0], pod.node or "")
            cpu, memory = host.get(node_key, (0, 0))
            host[node_key] = (cpu + (pod.cpu_milli or 0), memory + (pod.memory_bytes or 0))
            resources[pod.gpu_resource or ""] += pod.gpus  # type: ignore[assignment]
        priorities = [pod.priority for pod in pods]
        numbers = [p for p in priorities if p is not None]
        return DeviceHolder(
            key,
            tuple((node, kind) for node, kind, _, usable in devices if usable),
            sum(pod.gpus for pod in pods),
            host,
            activity,
            why,
            max(numbers) if numbers and len(numbers) == len(priorities) else None,
            next((pod.queue for pod in pods if pod.queue), None),
            resources,
            self._estimate_loss(key, [name for _, _, name, usable in devices if usable], pods),
            _find_protection(pods, self._now),
        )

    def _estimate_loss(
        self, key: WorkloadKey, devices: Sequence[str], pods: Sequence[PodRecord]
    ) -> WorkAtRisk:
        weight = sum(self._weights.get((key[0], name), 1.0) for name in devices)
        requested = sum(pod.gpus for pod in pods)
        if not pods or requested < weight - _ALMOST:
            return WorkAtRisk(None, f"its pods account for {requested:g} of its {weight:g} GPUs")
        return _estimate_loss(
            key[2], pods, self._at, self._checkpoints.get(key), self._lost_before.get(key)
        )

    def _judge_activity(
        self, key: WorkloadKey, devices: Sequence[str], pods: Sequence[PodRecord]
    ) -> tuple[Activity, str]:
        if not pods or any(not pod.resolved for pod in pods):
            return "unknown", "its pods or their owner are not known"
        requested = sum(pod.gpus for pod in pods)
        weight = sum(self._weights.get((key[0], name), 1.0) for name in devices)
        if weight < requested - _ALMOST:
            return "unknown", f"telemetry shows {weight:g} of its {requested:g} GPUs"
        states = [self._states.get((*key, name)) for name in devices]
        seen = [(s, i) for s, i in (row or (0.0, 0.0) for row in states) if s >= LEAST_IDLE_S]
        if len(seen) < len(devices):
            missing = len(devices) - len(seen)
            return "unknown", f"the ledger's newest hours lack {missing} of its devices"
        idle = sum(i >= s - 1 for s, i in seen)
        words = f"idle by the ledger's newest hours on {idle} of its {len(devices)} devices"
        if idle == len(devices):
            return "idle", words
        return ("partly_idle", words) if idle else ("busy", "at work in the ledger's newest hours")

    @cached_property
    def _weights(self) -> dict[tuple[str, str], float]:
        return {(a.key[0], a.device): a.weight for a in self._state.allocations}

    @cached_property
    def _states(self) -> dict[tuple[str, str, str, str, str], tuple[float, float]]:
        rows = self._query("recent_states", until=self._now)
        return {
            (*_get_key(row), row["device"]): (float(row["seconds"]), float(row["idle_s"]))
            for row in rows
        }

    @cached_property
    def _idle_hours(self) -> dict[WorkloadKey, list[tuple[int, float]]]:
        hours: dict[WorkloadKey, list[tuple[int, float]]] = {}
        for row in self._query("idle_hours", since=self._now - LONGEST_WAIT, until=self._now):
            hours.setdefault(_get_key(row), []).append((row["hour_us"], row["gpu_hours"]))
        return hours

    @cached_property
    def _lost_before(self) -> dict[WorkloadKey, float]:
        """Return the hours per GPU that each workload's failures lost at most, where measured."""
        rows = self._query("lost_hours", since=self._now - LONGEST_WAIT, until=self._now)
        return {_get_key(row): round(float(row["hours"]), 6) for row in rows}

    def _query(self, name: str, **parameters: datetime) -> list[dict[str, Any]]:
        sql = read_text("capacity.queue", f"{name}.sql")
        rows: list[dict[str, Any]] = self._views.query(sql, parameters).to_pylist()
        return rows


def sum_freed(holders: Sequence[DeviceHolder]) -> dict[NodeKey, FreeCapacity]:
    """Return what stopping some workloads frees on each node."""
    freed: dict[NodeKey, FreeCapacity] = {}
    for holder in holders:
        for node_key, kind in holder.devices:
            capacity = freed.setdefault(node_key, FreeCapacity({}, 0, 0))
            capacity.devices[kind] = capacity.devices.get(kind, 0) + 1
        for node_key, (cpu, memory) in holder.host.items():
            if node_key in freed:
                freed[node_key].cpu_milli += cpu
                freed[node_key].memory_bytes += memory
    return freed


_ENDED = frozenset({"Succeeded", "Failed"})
_ALMOST = 1e-6


def _get_key(row: Mapping[str, Any]) -> WorkloadKey:
    return (row["cluster"], row["namespace"], row["workload_kind"], row["workload"])


def _estimate_loss(
    kind: str,
    pods: Sequence[PodRecord],
    at: int,
    saved_at: datetime | None,
    lost_before: float | None,
) -> WorkAtRisk:
    """Return the work that stopping a workload loses.

    A kind that its controller starts again loses what it did since the checkpoint that was last
    seen. Where none is seen it is estimated: at most the interval that its owner annotated, else
    what its failures lost of each GPU (`lost_before`, hours), else everything since it started.
    """
    row = read_tolerances().get(kind)
    if row is None or row.tolerance in {"never", "unknown"}:
        why = row.why if row else f"nothing is known of how a {kind} restarts"
        return WorkAtRisk(None, why)
    if row.tolerance == "replicated":
        return WorkAtRisk(0.0, row.why)
    total, intervals = 0.0, set[str]()
    for pod in pods:
        hours = max(0, at - (pod.placed or pod.begin)) / HOUR_US
        interval = parse_interval_hours(pod.annotation_map.get(INTERVAL))
        if saved_at is not None:
            hours = min(hours, max(0, at - to_micros(saved_at)) / HOUR_US)
        elif interval is not None:
            intervals.add(str(pod.annotation_map.get(INTERVAL)))
            hours = min(hours, interval)
        elif lost_before is not None:
            hours = min(hours, lost_before)
        total += pod.gpus * hours
    lost = round(total, 6)
    if saved_at is not None:
        text = f"since the checkpoint that was seen at {saved_at:%Y-%m-%d %H:%M} UTC"
        return WorkAtRisk(lost, text)
    basis = "everything since it started, no checkpoint is known"
    if intervals:
        basis = f"by {INTERVAL}: {', '.join(sorted(intervals))}"
    elif lost_before is not None:
        basis = f"its failures lost up to {lost_before:g} h of each GPU"
    return WorkAtRisk(lost, f"estimated, at most: {basis}", estimated=True)


def _find_protection(pods: Sequence[PodRecord], now: datetime) -> str:
    """Return the annotation or label that protects a workload; empty = none does."""
    for pod in pods:
        marks = read_stored_pod(pod.annotation_map) | {
            k: str(v) for k, v in pod.label_map.items() if k in read_annotations()
        }
        for name, value in sorted(marks.items()):
            row = read_annotations().get(name)
            if row is not None and row.protects(value, now.astimezone(UTC)):
                end = parse_timestamp(value)
                return f"{name} protects it{f' until {end:%Y-%m-%d %H:%M} UTC' if end else ''}"
    return ""
