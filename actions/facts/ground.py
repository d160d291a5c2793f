"""The ground that facts stand on: who held what, which pods and nodes there were, read once.

Everything here may be asked about any moment of the time it was read for, and answers from rows
of before that moment.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache, cached_property
from importlib.resources import files
from typing import Any

import msgspec

from fallow.acting import PodRef
from fallow.nouns import Subject
from fallow.seams import Views
from warehouse.steps import step

MICRO = 1_000_000
Key = tuple[str, str, str, str]
"""cluster, namespace, workload kind, workload"""
Place = tuple[str, str]
"""cluster, node"""


class Hold(msgspec.Struct, frozen=True, gc=False):
    """That a workload held a device, or a share of it, for a time."""

    key: Key
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


class Pod(msgspec.Struct, frozen=True, gc=False):
    """A pod and when it was there; moments in microseconds."""

    key: Key
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

    @property
    def words(self) -> dict[str, Any]:
        """Return its labels."""
        return _read(self.labels)

    @property
    def notes(self) -> dict[str, Any]:
        """Return the annotations that were kept."""
        return _read(self.annotations)


class Node(msgspec.Struct, frozen=True):
    """A node as it was last seen."""

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


def micros(moment: datetime) -> int:
    """Return a moment as microseconds since 1970."""
    return round(moment.timestamp() * MICRO)


def key_of(subject: Subject) -> Key:
    """Return whom rows are about."""
    return subject.cluster, subject.namespace, subject.workload_kind, subject.workload


class Ground:
    """Rows of one stretch of time, by workload, by device and by node."""

    def __init__(
        self, views: Views, since: datetime, until: datetime, keys: Iterable[Key] = ()
    ) -> None:
        self._views, self.since, self.until = views, since, until
        self._keys = frozenset(keys)
        self._taken: dict[datetime, dict[Place, tuple[int, int]]] = {}
        self._edges: dict[Key, list[int]] = {}

    def held(self, key: Key, at: int) -> list[Hold]:
        """Return what a workload held just before a moment."""
        return [h for h in self._by_key.get(key, ()) if h.start < at <= h.end]

    def all_held(self, key: Key) -> list[Hold]:
        """Return what a workload ever held."""
        return self._by_key.get(key, [])

    def next_edge(self, key: Key, at: int) -> int | None:
        """Return the next moment at which its pods, holders of its devices or nodes change."""
        if key not in self._edges:
            self._edges[key] = self._edges_of(key)
        edges = self._edges[key]
        place = bisect_left(edges, at)
        return edges[place] if place < len(edges) else None

    def _edges_of(self, key: Key) -> list[int]:
        held = self._by_key.get(key, [])
        pods = self._pods_by_key.get(key, [])
        on = {(h.key[0], h.device) for h in held}
        places = {(key[0], name) for name in (*(h.node for h in held), *(p.node for p in pods))}
        moments = [
            *(edge for device in on for h in self._by_device[device] for edge in (h.start, h.end)),
            *(edge for pod in pods for edge in (pod.begin, pod.end)),
            *(edge for place in places if place[1] for edge in self._turns(place)),
        ]
        return sorted(set(moments))

    def _turns(self, place: tuple[str, str | None]) -> list[int]:
        return self._events.get((place[0], place[1] or ""), ([], []))[0]

    def sharing(self, device: tuple[str, str], at: int) -> list[Hold]:
        """Return who held a device just before a moment."""
        return [h for h in self._by_device.get(device, ()) if h.start < at <= h.end]

    def on_node(self, place: Place, at: int) -> list[Hold]:
        """Return who held devices of a node just before a moment."""
        return [h for h in self._by_node.get(place, ()) if h.start < at <= h.end]

    def pods(self, key: Key, at: int) -> list[Pod]:
        """Return the pods of a workload that were there just before a moment."""
        return [p for p in self._pods_by_key.get(key, ()) if p.begin < at <= p.end]

    def next_pod(self, key: Key, at: int) -> int | None:
        """Return when the next pod of a workload came after a moment; None = none did."""
        return min((p.begin for p in self._pods_by_key.get(key, ()) if p.begin > at), default=None)

    def waiting(self, at: int) -> list[Pod]:
        """Return the pods that asked for GPUs just before a moment and had no node."""
        return [
            p
            for p in self._late
            if p.begin < at <= p.end and (p.placed is None or p.placed >= at) and p.gpus > 0
        ]

    def ready(self, place: Place, at: int) -> bool | None:
        """Say whether a node was ready: as its events say, else as it was seen."""
        node = self.nodes.get(place)
        moments, said = self._events.get(place, ((), ()))
        before = bisect_left(moments, at)
        if node is not None and node.last_us is not None and node.last_us <= at:
            if before and moments[before - 1] > node.last_us:
                return said[before - 1]
            return node.ready
        if before:
            return said[before - 1]
        # It was seen later as well: nothing says that it was away.
        return None if node is None else True

    def asked(self, at: datetime) -> dict[Place, tuple[int, int]]:
        """Return the milli-CPU and bytes that pods had asked for on each node."""
        if at not in self._taken:
            rows = self._views.query(_sql("taken"), {"until": at}).to_pylist()
            self._taken[at] = {
                (r["cluster"], r["node"]): (int(r["cpu_milli"] or 0), int(r["memory_bytes"] or 0))
                for r in rows
            }
        return self._taken[at]

    @cached_property
    def nodes(self) -> dict[Place, Node]:
        """Return the nodes that were there."""
        rows = self._views.query(
            _sql("nodes"), {"since": self.since - timedelta(hours=1), "until": self.until}
        ).to_pylist()
        return {(r["cluster"], r["node"]): Node(**r) for r in rows}

    @cached_property
    def devices(self) -> dict[Place, list[dict[str, Any]]]:
        """Return the devices of each node that could be held: no board that is cut up."""
        rows = self._views.query(
            "SELECT cluster, device, parent, node, gpu_model, profile, epoch_us(first_seen) AS "
            "first_us, epoch_us(last_seen) AS last_us FROM device WHERE node IS NOT NULL "
            "AND first_seen < $until AND last_seen >= $since ORDER BY cluster, node, device",
            {"since": self.since - timedelta(hours=1), "until": self.until},
        ).to_pylist()
        boards = {(r["cluster"], r["parent"]) for r in rows if r["parent"]}
        found: dict[Place, list[dict[str, Any]]] = defaultdict(list)
        for row in rows:
            if (row["cluster"], row["device"]) not in boards:
                found[row["cluster"], row["node"]].append(row)
        return found

    @cached_property
    def holds(self) -> list[Hold]:
        """Return all holds."""
        rows = self._views.query(
            _sql("holds"), {"since": self.since, "until": self.until}
        ).to_pydict()
        last = micros(self.until) + 1
        return [
            Hold(
                (c, ns or "", kind or "", name or ""), team, device, node, model, profile, parent,
                start, last if end is None else end, share, weight, said == "exact", interval,
                PodRef(pod or "", uid or "", node or ""),
            )
            for c, device, ns, kind, name, team, said, pod, uid, node, model, profile, parent,
            start, end, share, weight, interval in zip(
                *(rows[name] for name in _HOLD), strict=True
            )
        ]  # fmt: skip

    @cached_property
    def _by_key(self) -> Mapping[Key, list[Hold]]:
        return _grouped((h.key, h) for h in self.holds)

    @cached_property
    def _by_device(self) -> Mapping[tuple[str, str], list[Hold]]:
        return _grouped(((h.key[0], h.device), h) for h in self.holds)

    @cached_property
    def _by_node(self) -> Mapping[Place, list[Hold]]:
        return _grouped(((h.key[0], h.node), h) for h in self.holds if h.node)

    @cached_property
    def all_pods(self) -> list[Pod]:
        """Return the pods with GPUs, and those of the workloads asked for."""
        named = ["/".join(key) for key in sorted(self._keys)]
        rows = self._views.query(
            _sql("pods"), {"since": self.since, "until": self.until, "named": named}
        ).to_pydict()
        return [
            Pod(
                (c, ns or "", kind or "", name or ""), uid, pod, node, phase, kind is not None,
                top, team, queue, priority, resource, gpus, cpu, memory, labels, notes, begin, end,
                placed, ahead,
            )
            for c, uid, ns, pod, node, phase, kind, name, top, team, queue, priority, resource,
            gpus, cpu, memory, labels, notes, begin, end, placed, ahead in zip(
                *(rows[name] for name in _POD), strict=True
            )
        ]  # fmt: skip

    @cached_property
    def _pods_by_key(self) -> Mapping[Key, list[Pod]]:
        return _grouped((p.key, p) for p in self.all_pods)

    @cached_property
    def _late(self) -> list[Pod]:
        """Return the pods that ever waited for more than a second.

        The phase is today's: what has run to its end since waited before it was placed.
        """
        return [
            p
            for p in self.all_pods
            if p.gpus > 0
            and (p.placed is None or p.placed - p.begin > MICRO)
            and (p.placed is not None or (p.node is None and p.phase not in _OVER))
        ]

    @cached_property
    def _events(self) -> Mapping[Place, tuple[list[int], list[bool]]]:
        rows = self._views.query(step("inventory/ready"), {"until": self.until}).to_pylist()
        found: dict[Place, tuple[list[int], list[bool]]] = {}
        for row in rows:
            moments, said = found.setdefault((row["cluster"], row["node"]), ([], []))
            moments.append(row["at_us"])
            said.append(row["ready"])
        return found


_OVER = frozenset({"Succeeded", "Failed"})
_HOLD = (
    "cluster", "device", "namespace", "workload_kind", "workload", "team", "attribution", "pod",
    "pod_uid", "node", "gpu_model", "profile", "parent", "start_us", "end_us", "share", "weight",
    "interval_s",
)  # fmt: skip
_POD = (
    "cluster", "uid", "namespace", "pod", "node", "phase", "workload_kind", "workload",
    "workload_uid", "team", "queue", "priority_class", "gpu_resource", "gpus",
    "cpu_request_milli", "memory_request_bytes", "labels", "annotations", "begin_us", "end_us",
    "placed_us", "ahead_us",
)  # fmt: skip


def looks(
    views: Views, devices: Sequence[tuple[str, str]], now: datetime
) -> dict[tuple[str, str], dict[str, Any]]:
    """Return when devices were last looked at before a moment, with coverage and conflicts."""
    if not devices:
        return {}
    rows = views.query(
        _sql("looks"),
        {"clusters": [c for c, _ in devices], "devices": [d for _, d in devices], "until": now},
    ).to_pylist()
    return {(r["cluster"], r["device"]): r for r in rows}


def inventories(views: Views, now: datetime) -> dict[str, dict[str, Any]]:
    """Return when each cluster's API was last looked at before a moment."""
    rows = views.query(_sql("inventories"), {"until": now}).to_pylist()
    return {r["cluster"]: r for r in rows}


def moment(us: float) -> datetime:
    """Return microseconds since 1970 as an aware moment."""
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=us)


@cache
def _sql(name: str) -> str:
    return files("actions.facts").joinpath(f"{name}.sql").read_text(encoding="utf-8").strip()


@cache
def _read(text: str | None) -> dict[str, Any]:
    found = msgspec.json.decode(text) if text else {}
    return found if isinstance(found, dict) else {}


def _grouped(pairs: Iterable[tuple[Any, Any]]) -> dict[Any, list[Any]]:
    found: dict[Any, list[Any]] = defaultdict(list)
    for key, item in pairs:
        found[key].append(item)
    return dict(found)
