"""Who waits for GPUs, and whether the GPUs of a case would really admit them.

A waiter is a whole workload: all of its waiting pods get a place, or none counts. A pod's place
is one node that is ready, whose taints it bears, whose labels it asks for, with so many free
devices of its sort (whole GPUs, or instances of one MIG profile) and enough CPU and memory.
What fits onto what is free already does not wait for GPUs, and freeing more admits nobody.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import Any

import msgspec

from actions.facts.ground import Ground, Hold, Key, Node, Place, Pod, micros, moment
from fallow.acting import Waiter
from fallow.taints import BLOCKING, TOLERATIONS, tolerates

SELECTOR = "fallow.selector"
GATED = "no wait for GPUs: what is free already would do"
_MIG = re.compile(r".*/mig-(?:(\d+)c\.)?((\d+)g\.\d+gb(?:\..*)?)$")
_WHOLE = re.compile(
    r"^(?:nvidia\.com|amd\.com|habana\.ai|huawei\.com)/[a-z0-9.-]*(?:gpu|gaudi|Ascend.*)$",
    re.IGNORECASE,
)
_SLICES = 7
_ALMOST = 1e-6
Sort = str
"""Empty = whole GPUs; else the MIG profile."""


class Need(msgspec.Struct, frozen=True):
    """What one pod asks of its node."""

    sort: Sort
    count: int
    cpu_milli: int
    memory_bytes: int
    selector: tuple[tuple[str, tuple[str, ...]], ...] = ()
    bears: tuple[tuple[str, str, str, str], ...] = ()


class Shape(msgspec.Struct, frozen=True):
    """What a waiting workload asks for: one need per pod, the largest first."""

    cluster: str
    needs: tuple[Need, ...]


class Room(msgspec.Struct):
    """What is free on a node."""

    devices: dict[Sort, int]
    cpu_milli: float
    memory_bytes: float

    def copy(self) -> "Room":
        """Return the same, to be changed."""
        return Room(dict(self.devices), self.cpu_milli, self.memory_bytes)

    def fits(self, need: Need) -> bool:
        """Say whether a pod fits."""
        return (
            self.devices.get(need.sort, 0) >= need.count
            and self.cpu_milli >= need.cpu_milli
            and self.memory_bytes >= need.memory_bytes
        )

    def take(self, need: Need) -> None:
        """Put a pod here."""
        self.devices[need.sort] -= need.count
        self.cpu_milli -= need.cpu_milli
        self.memory_bytes -= need.memory_bytes


class _Standing(msgspec.Struct, frozen=True):
    """One waiting workload, and what of it finds no place as things are."""

    key: Key
    gpus: float
    since: datetime
    shape: Shape | None
    left: tuple[Need, ...] = ()
    """The pods without a place; empty = all have one already."""
    rest: Mapping[Place, Room] = {}
    """What its other pods leave free."""
    why: str = ""


class Line:
    """The line at one moment."""

    def __init__(self, ground: Ground, now: datetime) -> None:
        self._ground, self._now, self._at = ground, now, micros(now)

    def admits(self, holds: Sequence[Hold], pods: Sequence[Pod]) -> tuple[Waiter, ...] | None:
        """Return who waits, and whether they run once these holds and pods are gone.

        None where the inventory shows no pods at all: then who waits is unknown.
        """
        if not self._ground.all_pods:
            return None
        clusters = {h.key[0] for h in holds}
        freed = self._freed(holds, pods)
        answers: dict[Shape, tuple[bool, str]] = {}
        found = []
        for one in self._standing:
            if one.key[0] not in clusters:
                continue
            if one.shape is None or not one.left:
                admitted, why = (None if one.shape is None else False), one.why
            else:
                if one.shape not in answers:
                    answers[one.shape] = self._answer(one, freed)
                admitted, why = answers[one.shape]
            _, namespace, kind, workload = one.key
            found.append(Waiter(namespace, kind, workload, one.gpus, one.since, admitted, why))
        return tuple(found)

    @cached_property
    def _standing(self) -> list[_Standing]:
        by_key: dict[Key, list[Pod]] = {}
        for pod in self._ground.waiting(self._at):
            by_key.setdefault(_whose(pod), []).append(pod)
        known: dict[Shape, tuple[tuple[Need, ...], Mapping[Place, Room]]] = {}
        made = []
        for key, pods in sorted(by_key.items()):
            gpus, since = round(sum(p.gpus for p in pods), 6), moment(min(p.begin for p in pods))
            shape = _shape(key[0], pods)
            if shape is None:
                why = f"whether {pods[0].gpu_resource} fits is not worked out"
                made.append(_Standing(key, gpus, since, None, why=why))
                continue
            if shape not in known:
                known[shape] = self._placed(shape)
            left, rest = known[shape]
            made.append(_Standing(key, gpus, since, shape, left, rest, "" if left else GATED))
        return made

    def _placed(self, shape: Shape) -> tuple[tuple[Need, ...], Mapping[Place, Room]]:
        """Put pods onto what is free; return those without a place, and what is left over."""
        rest: dict[Place, Room] = {}
        left = []
        for need in shape.needs:
            legal = [p for p in self._legal(shape.cluster, need) if self._room(rest, p).fits(need)]
            if not legal:
                left.append(need)
                continue
            # The fullest node that will do, so that large gaps stay for large pods.
            place = min(legal, key=lambda p: (self._room(rest, p).devices[need.sort], p))
            rest.setdefault(place, self._free[place].copy()).take(need)
        return tuple(left), rest

    def _answer(self, one: _Standing, freed: Mapping[Place, Room]) -> tuple[bool, str]:
        """Say whether the pods without a place find one on the nodes that a case frees."""
        rooms: dict[Place, Room] = {}
        for place, more in freed.items():
            room = self._room(one.rest, place).copy()
            for sort, count in more.devices.items():
                room.devices[sort] = room.devices.get(sort, 0) + count
            room.cpu_milli += more.cpu_milli
            room.memory_bytes += more.memory_bytes
            rooms[place] = room
        for need in one.left:
            open_ = [p for p in rooms if self._ground.nodes.get(p) is not None]
            legal = [p for p in open_ if not self._shut(p, need)]
            fitting = [p for p in legal if rooms[p].fits(need)]
            if not fitting:
                return False, self._why(need, open_, legal, rooms)
            rooms[min(fitting, key=lambda p: (rooms[p].devices[need.sort], p))].take(need)
        return True, ""

    def _why(
        self,
        need: Need,
        open_: Sequence[Place],
        legal: Sequence[Place],
        rooms: Mapping[Place, Room],
    ) -> str:
        sort = f"{need.sort} instances" if need.sort else "whole GPUs"
        if not open_:
            return "nothing is known of the nodes that it would free"
        if not legal:
            return next(filter(None, (self._shut(p, need) for p in sorted(open_))))
        most = max(rooms[p].devices.get(need.sort, 0) for p in legal)
        if most < need.count:
            return f"it needs {need.count} {sort} on one node, {most} would be free"
        return "CPU or memory of the node would not do"

    def _freed(self, holds: Sequence[Hold], pods: Sequence[Pod]) -> dict[Place, Room]:
        """Return what a case frees on each node: only devices that nobody else holds."""
        found: dict[Place, Room] = {}
        for hold in holds:
            others = self._ground.sharing((hold.key[0], hold.device), self._at)
            if hold.node is None or any(o.key != hold.key for o in others):
                continue
            room = found.setdefault((hold.key[0], hold.node), Room({}, 0, 0))
            room.devices[hold.profile or ""] = room.devices.get(hold.profile or "", 0) + 1
        for pod in pods:
            if pod.node and (pod.key[0], pod.node) in found:
                room = found[pod.key[0], pod.node]
                room.cpu_milli += pod.cpu_milli or 0
                room.memory_bytes += pod.memory_bytes or 0
        return found

    def _legal(self, cluster: str, need: Need) -> list[Place]:
        return [p for p in self._with_room.get((cluster, need.sort), ()) if not self._shut(p, need)]

    def _shut(self, place: Place, need: Need) -> str:
        """Say why a node is not for a pod, whatever is free on it; empty = it is."""
        node = self._ground.nodes[place]
        if node.unschedulable or self._ground.ready(place, self._at) is not True:
            return f"{place[1]} takes no pods: it is cordoned or not ready"
        labels = _document(node.labels)
        for name, legal in need.selector:
            if labels.get(name) not in legal:
                return f"it asks for {name}={'|'.join(legal)}, {place[1]} has {labels.get(name)}"
        for taint in _document(node.taints) or ():
            if taint.get("effect") in BLOCKING and not any(tolerates(b, taint) for b in need.bears):
                return f"it does not bear {place[1]}'s taint {taint.get('key')}"
        return ""

    def _room(self, rest: Mapping[Place, Room], place: Place) -> Room:
        return rest.get(place) or self._free.get(place) or Room({}, 0, 0)

    @cached_property
    def _free(self) -> dict[Place, Room]:
        """Return what is free on each node now."""
        asked = self._ground.asked(self._now)
        found: dict[Place, Room] = {}
        for place, node in self._ground.nodes.items():
            held = {h.device for h in self._ground.on_node(place, self._at)}
            room = Room({}, *_idle(node, asked.get(place, (0, 0))))
            for device in self._ground.devices.get(place, ()):
                there = device["first_us"] < self._at
                if there and device["device"] not in held:
                    sort = device["profile"] or ""
                    room.devices[sort] = room.devices.get(sort, 0) + 1
            found[place] = room
        return found

    @cached_property
    def _with_room(self) -> dict[tuple[str, Sort], list[Place]]:
        found: dict[tuple[str, Sort], list[Place]] = {}
        for place, room in self._free.items():
            for sort, count in room.devices.items():
                if count:
                    found.setdefault((place[0], sort), []).append(place)
        return found


def _idle(node: Node, asked: tuple[int, int]) -> tuple[float, float]:
    """Return a node's CPU and memory that nobody asked for; what is not known is no obstacle."""
    cpu = float("inf") if node.cpu_milli is None else node.cpu_milli - asked[0]
    memory = float("inf") if node.memory_bytes is None else node.memory_bytes - asked[1]
    return cpu, memory


def _whose(pod: Pod) -> Key:
    """Return whose pod it is; one whose owner is not known stands alone."""
    if pod.resolved:
        return pod.key
    return (pod.key[0], pod.key[1], "Pod", pod.pod)


def _shape(cluster: str, pods: Iterable[Pod]) -> Shape | None:
    needs = []
    for pod in pods:
        sort = _sort(pod)
        if sort is None:
            return None
        notes = pod.notes
        selector = notes.get(SELECTOR) or {}
        needs.append(
            Need(
                *sort,
                pod.cpu_milli or 0,
                pod.memory_bytes or 0,
                tuple((k, tuple(v)) for k, v in sorted(selector.items())),
                tuple(tuple(map(str, t)) for t in notes.get(TOLERATIONS) or ()),  # type: ignore[misc]
            )
        )
    return Shape(cluster, tuple(sorted(needs, key=lambda n: (-n.count, -n.cpu_milli, n.sort))))


def _sort(pod: Pod) -> tuple[Sort, int] | None:
    """Return which devices a pod asks for and how many; None = it asks for shares or claims."""
    resource = pod.gpu_resource or ""
    if found := _MIG.match(resource):
        count = pod.gpus * _SLICES / int(found[3])
        return found[2], max(1, round(count))
    whole = round(pod.gpus)
    if _WHOLE.match(resource) and whole >= 1 and abs(pod.gpus - whole) < _ALMOST:
        return "", whole
    return None


def _document(text: str | None) -> Any:
    return json.loads(text) if text else {}
