"""Pods that wait, in the order in which the scheduler tries them.

Most of a long line waits for what the first of its kind could not get either. So the line is kept
by kind: a turn tries the first of each, the next when that one found its place, and those that
have not been told yet why they wait.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Mapping
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from simulator.cluster.evictions import Shape, shape
from simulator.cluster.scheduler.order import age, gangs, priority
from simulator.cluster.scheduler.requests import Gang, PodRequest

Key = tuple[int, float, str, str]


class Waiting(NamedTuple):
    """A lone pod or a gang that waits; comes before what has a greater key."""

    key: Key
    form: int
    """The same number for all that fail for the same reason (`evictions.shape`)."""
    gang: Gang


class Line:
    """Pending pods; who stands where is worked out again only where somebody came or went."""

    def __init__(self) -> None:
        self._pods: dict[str, PodRequest] = {}
        self._alone: dict[str, Waiting] = {}
        self._ganged: dict[str, dict[str, PodRequest]] = {}
        """By gang, then uid."""
        self._made: dict[str, Waiting | None] = {}
        """Gangs put together; None where too few of its pods wait."""
        self._least: Mapping[str, int] = {}
        self._by_form: dict[int, list[Waiting]] = {}
        self._forms: dict[Shape, int] = {}
        self._told: set[str] = set()
        self._untold: dict[str, None] = {}

    def __contains__(self, pod_uid: object) -> bool:
        return pod_uid in self._pods

    def __len__(self) -> int:
        return len(self._pods)

    def add(self, pod: PodRequest) -> None:
        """Let a pod wait."""
        self._pods[pod.uid] = pod
        if pod.uid not in self._told:
            self._untold[pod.uid] = None
        if pod.gang:
            self._part(pod.gang)
            self._ganged.setdefault(pod.gang, {})[pod.uid] = pod
        else:
            self._alone[pod.uid] = self._stand(Gang(pod.name, (pod,)))

    def remove(self, pod_uid: str) -> None:
        """Let a pod wait no more."""
        pod = self._pods.pop(pod_uid, None)
        if pod is None:
            return
        self._untold.pop(pod_uid, None)
        if not pod.gang:
            self._leave(self._alone.pop(pod_uid))
            return
        self._part(pod.gang)
        del self._ganged[pod.gang][pod_uid]
        if not self._ganged[pod.gang]:
            del self._ganged[pod.gang]

    def tell(self, pod_uid: str) -> bool:
        """Note that a pod knows why it waits; say whether it did not before."""
        new = pod_uid not in self._told
        self._told.add(pod_uid)
        self._untold.pop(pod_uid, None)
        return new

    def forget(self, pod_uid: str) -> None:
        """Tell a pod again when it waits again."""
        self._told.discard(pod_uid)

    def turn(self, least: Mapping[str, int]) -> "Turn":
        """Begin a turn; `least` is by gang (PodGroup `minMember`)."""
        if least != self._least:
            self._least = least
            for called in list(self._made):
                self._part(called)
        for called in self._ganged.keys() - self._made.keys():
            found = gangs(self._ganged[called].values(), least)
            self._made[called] = self._stand(found[0]) if found else None
        heads = [entries[0] for entries in self._by_form.values()]
        heads += [entry for uid in self._untold if (entry := self._entry(uid)) is not None]
        return Turn(self, heads)

    def after(self, one: Waiting) -> Waiting | None:
        """Return who stands behind one, or its empty place, and asks for the same."""
        entries = self._by_form.get(one.form, [])
        place = bisect_right(entries, one.key, key=_key)
        return entries[place] if place < len(entries) else None

    def _entry(self, pod_uid: str) -> Waiting | None:
        called = self._pods[pod_uid].gang
        return self._made[called] if called else self._alone[pod_uid]

    def _part(self, called: str) -> None:
        made = self._made.pop(called, None)
        if made is not None:
            self._leave(made)

    def _stand(self, one: Gang) -> Waiting:
        key = (-priority(one), age(one), one.name, one.members[0].uid)
        entry = Waiting(key, self._forms.setdefault(shape(one), len(self._forms)), one)
        insort(self._by_form.setdefault(entry.form, []), entry, key=_key)
        return entry

    def _leave(self, entry: Waiting) -> None:
        entries = self._by_form[entry.form]
        del entries[bisect_left(entries, entry.key, key=_key)]
        if not entries:
            del self._by_form[entry.form]


class Turn:
    """One walk along the line, by priority, age and name (`scheduler.order`)."""

    def __init__(self, line: Line, heads: list[Waiting]) -> None:
        self._line, self._ahead = line, heads
        self._last: Waiting | None = None
        heapify(self._ahead)

    def step(self) -> Waiting | None:
        """Return who is next; None at the end."""
        while self._ahead:
            one = heappop(self._ahead)
            if one is not self._last:
                self._last = one
                return one
        return None

    def go_on(self, one: Waiting) -> None:
        """Let the next who asks for the same as `one` have a try."""
        behind = self._line.after(one)
        if behind is not None:
            heappush(self._ahead, behind)


def _key(entry: Waiting) -> Key:
    return entry.key
