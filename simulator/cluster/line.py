"""Pods that wait, kept in the order in which the scheduler tries them."""

from bisect import bisect_left, insort
from collections.abc import Mapping, Sequence
from heapq import merge
from typing import NamedTuple

from simulator.cluster.evictions import Shape, shape
from simulator.cluster.scheduler.order import age, gangs, priority
from simulator.cluster.scheduler.requests import Gang, PodRequest

Key = tuple[int, float, str, str]


class Waiting(NamedTuple):
    """A lone pod or a gang that waits; comes before what has a greater key."""

    key: Key
    gang: Gang
    form: int
    """The same number for all that fail for the same reason (`evictions.shape`)."""
    uids: frozenset[str]


class Line:
    """Pending pods; who stands where is worked out again only where somebody came or went."""

    def __init__(self) -> None:
        self._pods: dict[str, PodRequest] = {}
        self._lone: list[Waiting] = []
        self._ganged: dict[str, dict[str, PodRequest]] = {}
        """By gang, then uid."""
        self._made: dict[str, list[Waiting]] = {}
        """Gangs put together; none where too few of its pods wait."""
        self._least: Mapping[str, int] = {}
        self._order: Sequence[Waiting] | None = None
        self._forms: dict[Shape, int] = {}

    def __contains__(self, pod_uid: object) -> bool:
        return pod_uid in self._pods

    def __len__(self) -> int:
        return len(self._pods)

    def add(self, pod: PodRequest) -> None:
        """Let a pod wait."""
        self._pods[pod.uid] = pod
        self._order = None
        if pod.gang:
            self._ganged.setdefault(pod.gang, {})[pod.uid] = pod
            self._made.pop(pod.gang, None)
        else:
            one = Gang(pod.name, (pod,))
            insort(self._lone, self._waiting(one), key=lambda entry: entry.key)

    def remove(self, pod_uid: str) -> None:
        """Let a pod wait no more."""
        pod = self._pods.pop(pod_uid, None)
        if pod is None:
            return
        self._order = None
        if not pod.gang:
            del self._lone[bisect_left(self._lone, _key(pod), key=lambda entry: entry.key)]
            return
        self._made.pop(pod.gang, None)
        del self._ganged[pod.gang][pod_uid]
        if not self._ganged[pod.gang]:
            del self._ganged[pod.gang]

    def ordered(self, least: Mapping[str, int]) -> Sequence[Waiting]:
        """Return gangs and lone pods by priority, age and name (`scheduler.order`)."""
        if least != self._least:
            self._least, self._order = least, None
            self._made.clear()
        if self._order is None:
            for called, pods in self._ganged.items():
                if called not in self._made:
                    found = gangs(pods.values(), least)
                    self._made[called] = [self._waiting(one) for one in found]
            ganged = sorted(entry for made in self._made.values() for entry in made)
            self._order = list(merge(self._lone, ganged, key=lambda entry: entry.key))
        return self._order

    def _waiting(self, one: Gang) -> Waiting:
        key = (-priority(one), age(one), one.name, one.members[0].uid)
        form = self._forms.setdefault(shape(one), len(self._forms))
        return Waiting(key, one, form, frozenset(pod.uid for pod in one.members))


def _key(pod: PodRequest) -> Key:
    return (-pod.priority, pod.created_s, pod.name, pod.uid)
