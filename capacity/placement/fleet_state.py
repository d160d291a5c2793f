"""Read allocations, pods and nodes once, as the common input of all facts.

Every function may be called for any time of the window that was read. It answers from rows before
that time.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache, cached_property
from typing import Any

import msgspec

from fallow.action_models import PodRef
from fallow.models import UNRESOLVED, Subject
from fallow.protocols import Views
from fallow.resources import read_text
from warehouse.past_values import PastValues
from warehouse.steps import POD_OWNERS, compose_query, load_step

MICRO = 1_000_000
WorkloadKey = tuple[str, str, str, str]
"""cluster, namespace, workload kind, workload"""
NodeKey = tuple[str, str]
"""cluster, node"""


class WorkloadAllocation(msgspec.Struct, frozen=True, gc=False):
    """The allocation of a device, or of a share of it, to a workload for a time."""

    key: WorkloadKey
    owner: str | None
    device: str
    node: str | None
    model: str | None
    profile: str | None
    parent: str | None
    start: int
    end: int
    share: float
    weight: float
    exact: bool
    interval_s: float | None
    pod: PodRef


class PodRecord(msgspec.Struct, frozen=True, gc=False):
    """A pod and the time in which it existed; times in microseconds since 1970."""

    key: WorkloadKey
    uid: str
    pod: str
    node: str | None
    phase: str | None
    resolved: bool
    workload_uid: str | None
    team: str | None
    queue: str | None
    priority_class: str | None
    gpu_resource: str | None
    gpus: float
    cpu_milli: int | None
    memory_bytes: int | None
    labels: str | None
    annotations: str | None
    begin: int
    end: int
    placed: int | None
    ahead: int | None
    priority: int | None = None
    unscheduled: str | None = None
    constraints: str | None = None
    """Rules of its placement that depend on other pods, by name (`pod_rules.RULES`)."""
    marks: int | None = None
    """When its annotations were first observed; None = it is not known."""

    @property
    def label_map(self) -> dict[str, Any]:
        """Return its labels."""
        return _read(self.labels)

    @property
    def annotation_map(self) -> dict[str, Any]:
        """Return the annotations that the collector stored."""
        return _read(self.annotations)


class NodeRecord(msgspec.Struct, frozen=True):
    """A node in its last observed state."""

    cluster: str
    node: str
    uid: str | None
    pool: str | None
    capacity_type: str | None
    cpu_milli: int | None
    memory_bytes: int | None
    gpu_count: int | None
    gpu_model: str | None
    sharing: str | None
    ready: bool | None
    unschedulable: bool | None
    labels: str | None
    taints: str | None
    first_us: int | None
    last_us: int | None


def to_micros(timestamp: datetime) -> int:
    """Return a time as microseconds since 1970."""
    return round(timestamp.timestamp() * MICRO)


def get_workload_key(subject: Subject) -> WorkloadKey:
    """Return the key of the workload that a subject names."""
    return subject.cluster, subject.namespace, subject.workload_kind, subject.workload


class FleetState:
    """Rows of one window, by workload, by device and by node."""

    def __init__(
        self, views: Views, since: datetime, until: datetime, keys: Iterable[WorkloadKey] = ()
    ) -> None:
        self._views, self.since, self.until = views, since, until
        self._keys = frozenset(keys)
        self._requested: dict[datetime, dict[NodeKey, tuple[int, int]]] = {}
        self._edges: dict[WorkloadKey, list[int]] = {}

    def allocations_at(self, key: WorkloadKey, at: int) -> list[WorkloadAllocation]:
        """Return a workload's allocations just before a given time."""
        return [
            allocation
            for allocation in self._by_key.get(key, ())
            if allocation.start < at <= allocation.end
        ]

    def all_allocations(self, key: WorkloadKey) -> list[WorkloadAllocation]:
        """Return all allocations of a workload in the window."""
        return self._by_key.get(key, [])

    def next_edge(self, key: WorkloadKey, at: int) -> int | None:
        """Return the next time at which its pods, its devices' allocations or its nodes change."""
        if key not in self._edges:
            self._edges[key] = self._edges_of(key)
        edges = self._edges[key]
        index = bisect_left(edges, at)
        return edges[index] if index < len(edges) else None

    def _edges_of(self, key: WorkloadKey) -> list[int]:
        allocations = self._by_key.get(key, [])
        pods = self._pods_by_key.get(key, [])
        devices = {(h.key[0], h.device) for h in allocations}
        node_keys = {
            (key[0], name) for name in (*(h.node for h in allocations), *(p.node for p in pods))
        }
        changes = [
            *(
                edge
                for device in devices
                for h in self._by_device[device]
                for edge in (h.start, h.end)
            ),
            *(edge for pod in pods for edge in (pod.begin, pod.end)),
            *(
                edge
                for pod in pods
                for edge, _ in self._past_values.list_changes((key[0], pod.uid))
            ),
            *(
                edge
                for node_key in node_keys
                if node_key[1]
                for edge in self._readiness_changes(node_key)
            ),
        ]
        return sorted(set(changes))

    def _readiness_changes(self, node_key: tuple[str, str | None]) -> list[int]:
        return self._events.get((node_key[0], node_key[1] or ""), ([], []))[0]

    def device_allocations_at(self, device: tuple[str, str], at: int) -> list[WorkloadAllocation]:
        """Return the allocations of a device just before a given time."""
        return [
            allocation
            for allocation in self._by_device.get(device, ())
            if allocation.start < at <= allocation.end
        ]

    def node_allocations_at(self, node_key: NodeKey, at: int) -> list[WorkloadAllocation]:
        """Return the allocations of a node's devices just before a given time."""
        return [
            allocation
            for allocation in self._by_node.get(node_key, ())
            if allocation.start < at <= allocation.end
        ]

    def pods(self, key: WorkloadKey, at: int) -> list[PodRecord]:
        """Return the pods of a workload that existed just before a given time, as of then."""
        return self._list_existing(self._pods_by_key.get(key, ()), at)

    def unresolved_pods(self, cluster: str, namespace: str, at: int) -> list[PodRecord]:
        """Return the pods of a namespace just before a given time whose owner is not known."""
        return self._list_existing(self._unresolved.get((cluster, namespace), ()), at)

    def node_pods(self, node_key: NodeKey, at: int) -> list[PodRecord]:
        """Return the pods that existed on a node just before a given time."""
        return self._list_existing(self._pods_by_node.get(node_key, ()), at)

    def next_pod(self, key: WorkloadKey, at: int) -> int | None:
        """Return when the workload's next pod was created after a given time; None = no pod was."""
        return min((p.begin for p in self._pods_by_key.get(key, ()) if p.begin > at), default=None)

    def pending_at(self, at: int) -> list[PodRecord]:
        """Return the pods that requested GPUs just before a given time and had no node."""
        waiting = [p for p in self._waited if p.placed is None or p.placed >= at]
        return self._list_existing(waiting, at)

    def _list_existing(self, pods: Iterable[PodRecord], at: int) -> list[PodRecord]:
        """Return those that existed just before a time, with the values that were observed then."""
        return [
            msgspec.structs.replace(p, **values)
            if (values := self._past_values.find((p.key[0], p.uid), at))
            else p
            for p in pods
            if p.begin < at <= p.end
        ]

    def ready(self, node_key: NodeKey, at: int) -> bool | None:
        """Return whether a node was ready: by its latest event or its last observed state."""
        times, states = self._events.get(node_key, ((), ()))
        index = bisect_left(times, at)
        if index:
            return states[index - 1]
        # The node was observed later too: nothing shows that it was not ready.
        return None if node_key not in self.nodes else True

    def requested_at(self, at: datetime) -> dict[NodeKey, tuple[int, int]]:
        """Return the milli-CPU and bytes that pods requested on each node."""
        if at not in self._requested:
            rows = self._views.query(_load_sql("node_requests"), {"until": at}).to_pylist()
            self._requested[at] = {
                (r["cluster"], r["node"]): (int(r["cpu_milli"] or 0), int(r["memory_bytes"] or 0))
                for r in rows
            }
        return self._requested[at]

    @cached_property
    def nodes(self) -> dict[NodeKey, NodeRecord]:
        """Return the nodes that existed in the window."""
        rows = self._views.query(
            _load_sql("nodes"), {"since": self.since - timedelta(hours=1), "until": self.until}
        ).to_pylist()
        return {(r["cluster"], r["node"]): NodeRecord(**r) for r in rows}

    @cached_property
    def devices(self) -> dict[NodeKey, list[dict[str, Any]]]:
        """Return the allocatable devices of each node.

        A GPU split into MIG instances is left out.
        """
        rows = self._views.query(
            "SELECT cluster, device, parent, node, gpu_model, profile, epoch_us(first_seen) AS "
            "first_us, epoch_us(last_seen) AS last_us FROM device WHERE node IS NOT NULL "
            "AND first_seen < $until AND last_seen >= $since ORDER BY cluster, node, device",
            {"since": self.since - timedelta(hours=1), "until": self.until},
        ).to_pylist()
        parents = {(r["cluster"], r["parent"]) for r in rows if r["parent"]}
        by_node: dict[NodeKey, list[dict[str, Any]]] = defaultdict(list)
        for row in rows:
            if (row["cluster"], row["device"]) not in parents:
                by_node[row["cluster"], row["node"]].append(row)
        return by_node

    @cached_property
    def allocations(self) -> list[WorkloadAllocation]:
        """Return all allocations."""
        rows = self._views.query(
            _load_sql("allocations"), {"since": self.since, "until": self.until}
        ).to_pydict()
        end_of_last = to_micros(self.until) + 1
        return [
            WorkloadAllocation(
                (c, ns or "", kind or "", name or ""), team, device, node, model, profile, parent,
                start, end_of_last if end is None else end, share, weight, attribution == "exact",
                interval,
                PodRef(pod or "", uid or "", node or ""),
            )
            for c, device, ns, kind, name, team, attribution, pod, uid, node, model, profile,
            parent, start, end, share, weight, interval in zip(
                *(rows[name] for name in _ALLOCATION_COLUMNS), strict=True
            )
        ]  # fmt: skip

    @cached_property
    def _by_key(self) -> Mapping[WorkloadKey, list[WorkloadAllocation]]:
        return _group_rows((h.key, h) for h in self.allocations)

    @cached_property
    def _by_device(self) -> Mapping[tuple[str, str], list[WorkloadAllocation]]:
        return _group_rows(((h.key[0], h.device), h) for h in self.allocations)

    @cached_property
    def _by_node(self) -> Mapping[NodeKey, list[WorkloadAllocation]]:
        return _group_rows(((h.key[0], h.node), h) for h in self.allocations if h.node)

    @cached_property
    def all_pods(self) -> list[PodRecord]:
        """Return the pods with GPUs, and all pods of the workloads in `keys`."""
        keys = ["/".join(key) for key in sorted(self._keys)]
        rows = self._views.query(
            compose_query((POD_OWNERS, "pods"), "capacity.placement"),
            {"since": self.since, "until": self.until, "named": keys},
        ).to_pydict()
        return [
            PodRecord(
                (c, ns or "", kind or "", name or ""), uid, pod, node, phase, kind != UNRESOLVED,
                top, team, queue, priority, resource, gpus, cpu, memory, labels, annotations, begin,
                end, placed, ahead, number, unscheduled, constraints, marks,
            )
            for c, uid, ns, pod, node, phase, kind, name, top, team, queue, priority, resource,
            gpus, cpu, memory, labels, annotations, begin, end, placed, ahead, number,
            unscheduled, constraints, marks in zip(
                *(rows[name] for name in _POD_COLUMNS), strict=True
            )
        ]  # fmt: skip

    @cached_property
    def _past_values(self) -> PastValues:
        return PastValues(self._views)

    @cached_property
    def _pods_by_key(self) -> Mapping[WorkloadKey, list[PodRecord]]:
        return _group_rows((p.key, p) for p in self.all_pods)

    @cached_property
    def _pods_by_node(self) -> Mapping[NodeKey, list[PodRecord]]:
        return _group_rows(((p.key[0], p.node), p) for p in self.all_pods)

    @cached_property
    def _unresolved(self) -> Mapping[tuple[str, str], list[PodRecord]]:
        """Return the pods whose owner is not known, by cluster and namespace."""
        return _group_rows((p.key[:2], p) for p in self.all_pods if not p.resolved)

    @cached_property
    def _waited(self) -> list[PodRecord]:
        """Return the pods that ever waited for more than a second.

        The stored phase is today's. A pod that has ended since then also waited before it was
        placed.
        """
        return [
            p
            for p in self.all_pods
            if p.gpus > 0
            and (p.placed is None or p.placed - p.begin > MICRO)
            and (p.placed is not None or (p.node is None and p.phase not in _ENDED))
        ]

    @cached_property
    def _events(self) -> Mapping[NodeKey, tuple[list[int], list[bool | None]]]:
        rows = self._views.query(load_step("inventory/ready"), {"until": self.until}).to_pylist()
        by_node: dict[NodeKey, tuple[list[int], list[bool | None]]] = {}
        for row in rows:
            times, states = by_node.setdefault((row["cluster"], row["node"]), ([], []))
            times.append(row["at_us"])
            states.append(row["ready"])
        return by_node


_ENDED = frozenset({"Succeeded", "Failed"})
_ALLOCATION_COLUMNS = (
    "cluster", "device", "namespace", "workload_kind", "workload", "team", "attribution", "pod",
    "pod_uid", "node", "gpu_model", "profile", "parent", "start_us", "end_us", "share", "weight",
    "interval_s",
)  # fmt: skip
_POD_COLUMNS = (
    "cluster", "uid", "namespace", "pod", "node", "phase", "workload_kind", "workload",
    "workload_uid", "team", "queue", "priority_class", "gpu_resource", "gpus",
    "cpu_request_milli", "memory_request_bytes", "labels", "annotations", "begin_us", "end_us",
    "placed_us", "ahead_us", "priority", "unscheduled", "constraints", "marks_us",
)  # fmt: skip


def read_latest_samples(
    views: Views, devices: Sequence[tuple[str, str]], now: datetime
) -> dict[tuple[str, str], dict[str, Any]]:
    """Return when devices were last sampled before a given time, with coverage and conflicts."""
    if not devices:
        return {}
    rows = views.query(
        _load_sql("device_samples"),
        {"clusters": [c for c, _ in devices], "devices": [d for _, d in devices], "until": now},
    ).to_pylist()
    return {(r["cluster"], r["device"]): r for r in rows}


def read_inventories(views: Views, now: datetime) -> dict[str, dict[str, Any]]:
    """Return when each cluster's API was last read before a given time."""
    rows = views.query(_load_sql("inventories"), {"until": now}).to_pylist()
    return {r["cluster"]: r for r in rows}


def convert_micros(us: float) -> datetime:
    """Return microseconds since 1970 as an aware time."""
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=us)


@cache
def _load_sql(name: str) -> str:
    return read_text("capacity.placement", f"{name}.sql").strip()


@cache
def _read(text: str | None) -> dict[str, Any]:
    document = msgspec.json.decode(text) if text else {}
    return document if isinstance(document, dict) else {}


def _group_rows(pairs: Iterable[tuple[Any, Any]]) -> dict[Any, list[Any]]:
    groups: dict[Any, list[Any]] = defaultdict(list)
    for key, item in pairs:
        groups[key].append(item)
    return dict(groups)
