"""The rows that the fragmentation analyzer reads: one record per query and table."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from decimal import Decimal
from functools import cache
from typing import Any, TypeVar

import msgspec

from analyzers.pending import MeasureTimes
from analyzers.queries import load_records, load_sql
from fallow.models import State
from fallow.protocols import Views
from fallow.rows import Row, decode_rows
from fallow.selectors import LabelSelector
from fallow.window import Window


class ClusterRow(Row, frozen=True):
    """The superclass of rows of one cluster."""

    cluster: str


C = TypeVar("C", bound=ClusterRow)


class MeasuredTime(ClusterRow, frozen=True):
    """A time at which a cluster is measured (`measure_times.sql`)."""

    still: bool
    nth: int
    at: datetime


class InventoryNode(ClusterRow, frozen=True):
    """A node with GPUs by its inventory; empty = unknown (`inventory_nodes.sql`)."""

    node: str
    pool: str
    model: str
    gpus: int
    cpu_milli: int | None
    memory_bytes: int | None
    zone: str
    instance_type: str
    capacity_type: str
    taints: str | None
    labels: str | None
    open: bool


class DeviceShare(ClusterRow, frozen=True):
    """The allocated share of a device at one time (`device_shares.sql`)."""

    nth: int
    node: str
    device: str
    parent: str | None
    """The GPU of a MIG instance."""
    profile: str | None
    model: str
    allocated: float


class NodeRequests(ClusterRow, frozen=True):
    """What the pods of a node requested at one time (`node_requests.sql`)."""

    nth: int
    node: str
    cpu_milli: int
    memory_bytes: int


class NamedDevice(msgspec.Struct, frozen=True):
    """A device that a pod's claim or annotation names, and the pod's share of it."""

    device: str | None = None
    share: float | None = None


class ApartTerm(msgspec.Struct, frozen=True):
    """A term of anti-affinity: the pods that must be on other nodes."""

    selector: LabelSelector | None = None
    namespaces: list[str] | None = None
    """None or empty = the pod's own."""


class NodePod(ClusterRow, frozen=True):
    """A pod on a node with GPUs at the last time, and its devices (`node_pods.sql`)."""

    uid: str
    namespace: str | None
    pod: str | None
    node: str
    owner_kind: str | None
    workload_kind: str | None
    workload: str | None
    labels: str | None
    annotations: str | None
    constraints: str | None
    devices: str | None
    allocated: list[str] | None
    shares: list[float | None] | None
    gpus: float
    cpu_milli: int
    memory_bytes: int

    @property
    def notes(self) -> dict[str, Any]:
        """Its stored annotations."""
        return msgspec.json.decode(self.annotations or "{}", type=dict[str, Any])

    @property
    def label_values(self) -> dict[str, str]:
        """Its labels."""
        return msgspec.json.decode(self.labels or "{}", type=dict[str, str])

    @property
    def rules(self) -> dict[str, Any]:
        """Its constraints of placement, by name."""
        return msgspec.json.decode(self.constraints or "{}", type=dict[str, Any])

    @property
    def apart(self) -> list[ApartTerm]:
        """The pods from which it must be apart."""
        return msgspec.convert(self.rules.get("apart") or [], list[ApartTerm])

    @property
    def named_devices(self) -> list[tuple[str, float]]:
        """The devices allocated to it and its share of each, where they are named."""
        if self.allocated:
            shares = self.shares or [None] * len(self.allocated)
            pairs = zip(self.allocated, shares, strict=True)
            return [(name, 1.0 if share is None else share) for name, share in pairs]
        each = msgspec.json.decode(self.devices or "[]", type=list[str | NamedDevice])
        named = [NamedDevice(d) if isinstance(d, str) else d for d in each]
        return [(d.device, 1.0 if d.share is None else d.share) for d in named if d.device]


class UnallocatedHours(ClusterRow, frozen=True):
    """Unallocated GPU-hours of a node, and their cost (`unallocated_hours.sql`)."""

    node: str | None
    state: State
    gpu_hours: float
    usd: Decimal | None
    """None = an hour has no price."""


class RequestedType(ClusterRow, frozen=True):
    """A request of pods, and the number of these pods (`requested_types.sql`)."""

    cpu_milli: int
    gpus: int
    gpu_milli: int
    profile: str | None
    models: str | None
    pods: int


class NodeProcesses(Row, frozen=True):
    """Processes on a node's devices (`processes.sql`)."""

    node: str
    processes: int | None
    """None = a device has no data."""


class MovableKind(Row, frozen=True):
    """A kind of owner: whether its pods may move and restart together (`movable_kinds.csv`)."""

    workload_kind: str
    moves: bool
    together: bool
    why: str


def read_times(views: Views, window: Window, parts: int) -> list[MeasuredTime]:
    """Return the times at which each cluster is measured: the ends of equal parts."""
    parameters = {**window.bounds(), "parts": parts}
    return decode_rows(
        views.query(load_sql("fragmentation/measure_times"), parameters), MeasuredTime
    )


def read_nodes(views: Views, clusters: Sequence[str]) -> list[InventoryNode]:
    """Return the nodes with GPUs of some clusters."""
    nodes = views.query(load_sql("fragmentation/inventory_nodes"), {"clusters": list(clusters)})
    return decode_rows(nodes, InventoryNode)


def read_device_shares(views: Views, times: MeasureTimes) -> list[DeviceShare]:
    """Return the allocated share of each device at some times."""
    parameters = {"clusters": times.clusters, "nths": times.nths, "times": times.times}
    return decode_rows(
        views.query(load_sql("fragmentation/device_shares"), parameters), DeviceShare
    )


def read_node_requests(views: Views, times: MeasureTimes, unseen_s: int) -> list[NodeRequests]:
    """Return what pods of each node requested at some times.

    A pod is assumed to exist for `unseen_s` seconds after it was last seen.
    """
    parameters = {**msgspec.structs.asdict(times), "unseen_s": unseen_s}
    rows = views.query(load_sql("fragmentation/node_requests"), parameters)
    return decode_rows(rows, NodeRequests)


def read_node_pods(views: Views, times: Sequence[MeasuredTime], unseen_s: int) -> list[NodePod]:
    """Return the pods on nodes with GPUs at one time for each cluster."""
    parameters = {
        "clusters": [row.cluster for row in times],
        "times": [row.at for row in times],
        "stills": [row.still for row in times],
        "unseen_s": unseen_s,
    }
    return decode_rows(views.query(load_sql("fragmentation/node_pods"), parameters), NodePod)


def read_unallocated(views: Views, window: Window) -> list[UnallocatedHours]:
    """Return the unallocated GPU-hours of the window by node and state."""
    rows = views.query(load_sql("fragmentation/unallocated_hours"), window.bounds())
    return decode_rows(rows, UnallocatedHours)


def read_requested_types(
    views: Views, window: Window, clusters: Sequence[str], stills: Sequence[str]
) -> list[RequestedType]:
    """Return the requests of pods: in the window, or all of a still cluster."""
    parameters = {"clusters": list(clusters), "stills": list(stills), **window.bounds()}
    rows = views.query(load_sql("fragmentation/requested_types"), parameters)
    return decode_rows(rows, RequestedType)


def read_processes(
    views: Views, cluster: str, nodes: Sequence[str], until: datetime, lookback_s: float
) -> list[NodeProcesses]:
    """Return the processes on nodes of a cluster in the last rollups before a time."""
    parameters = {"cluster": cluster, "nodes": list(nodes), "until": until, "back_s": lookback_s}
    return decode_rows(views.query(load_sql("fragmentation/processes"), parameters), NodeProcesses)


@cache
def read_movable_kinds() -> dict[str, MovableKind]:
    """Return the rows of `movable_kinds.csv` by kind of owner."""
    rows = load_records("fragmentation/movable_kinds", MovableKind)
    return {row.workload_kind: row for row in rows}


def group_by_cluster(rows: Iterable[C]) -> dict[str, list[C]]:
    """Return the rows of each cluster."""
    by_cluster: dict[str, list[C]] = {}
    for row in rows:
        by_cluster.setdefault(row.cluster, []).append(row)
    return by_cluster
