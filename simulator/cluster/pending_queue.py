"""Pods that wait, in the order in which the scheduler tries them.

Most of a long line waits for what the first of its kind could not get either. So the line is kept
by kind: a turn tries the first of each, the next when that one found its place, and those that
have not been told yet why they wait.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Mapping
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from simulator.cluster.preemption import Shape, shape
from simulator.cluster.scheduler.order import age, gangs, priority
from simulator.cluster.scheduler.requests import PodGang, PodRequest

Key = tuple[int, float, str, str]


class PendingGang(NamedTuple):
    """A lone pod or a gang that waits; comes before what has a greater key."""

    key: Key
    form: int
    """The same number for all that fail for the same reason (`evictions.shape`)."""
    gang: PodGang


class PendingQueue:
    """Pending pods; who stands where is worked out again only where somebody came or went."""

    def __init__(self) -> None:
        self._pods: dict[str, PodRequest] = {}
        self._alone: dict[str, PendingGang] = {}
        self._ganged: dict[str, dict[str, PodRequest]] = {}
        """By gang, then uid."""
        self._gang_entries: dict[str, PendingGang | None] = {}
        """Gangs put together; None where too few of its pods wait."""
        self._min_members: Mapping[str, int] = {}
        self._by_form: dict[int, list[PendingGang]] = {}
        self._forms: dict[Shape, int] = {}
        self._notified: set[str] = set()
        self._not_notified: dict[str, None] = {}

    def __contains__(self, pod_uid: object) -> bool:
        return pod_uid in self._pods

    def __len__(self) -> int:
        return len(self._pods)

    def add(self, pod: PodRequest) -> None:
        """Let a pod wait."""
        self._pods[pod.uid] = pod
        if pod.uid not in self._notified:
            self._not_notified[pod.uid] = None
        if pod.gang:
            self._part(pod.gang)
            self._ganged.setdefault(pod.gang, {})[pod.uid] = pod
        else:
            self._alone[pod.uid] = self._stand(PodGang(pod.name, (pod,)))

    def remove(self, pod_uid: str) -> None:
        """Let a pod wait no more."""
        pod = self._pods.pop(pod_uid, None)
        if pod is None:
            return
        self._not_notified.pop(pod_uid, None)
        if not pod.gang:
            self._leave(self._alone.pop(pod_uid))
            return
        self._part(pod.gang)
        del self._ganged[pod.gang][pod_uid]
        if not self._ganged[pod.gang]:
            del self._ganged[pod.gang]

    def tell(self, pod_uid: str) -> bool:
        """Note that a pod knows why it waits; say whether it did not before."""
        new = pod_uid not in self._notified
        self._notified.add(pod_uid)
        self._not_notified.pop(pod_uid, None)
        return new

    def forget(self, pod_uid: str) -> None:
        """Tell a pod again when it waits again."""
        self._notified.discard(pod_uid)

    def turn(self, min_members: Mapping[str, int]) -> "QueuePass":
        """Begin a turn; `min_members` is by gang (PodGroup `minMember`)."""
        if min_members != self._min_members:
            self._min_members = min_members
            for gang_name in list(self._gang_entries):
                self._part(gang_name)
        for gang_name in self._ganged.keys() - self._gang_entries.keys():
            complete_gangs = gangs(self._ganged[gang_name].values(), min_members)
            self._gang_entries[gang_name] = (
                self._stand(complete_gangs[0]) if complete_gangs else None
            )
        heads = [entries[0] for entries in self._by_form.values()]
        heads += [entry for uid in self._not_notified if (entry := self._entry(uid)) is not None]
        return QueuePass(self, heads)

    def after(self, entry: PendingGang) -> PendingGang | None:
        """Return who stands behind one, or its empty place, and asks for the same."""
        entries = self._by_form.get(entry.form, [])
        place = bisect_right(entries, entry.key, key=_key)
        return entries[place] if place < len(entries) else None

    def _entry(self, pod_uid: str) -> PendingGang | None:
        gang_name = self._pods[pod_uid].gang
        return self._gang_entries[gang_name] if gang_name else self._alone[pod_uid]

    def _part(self, gang_name: str) -> None:
        entry = self._gang_entries.pop(gang_name, None)
        if entry is not None:
            self._leave(entry)

    def _stand(self, gang: PodGang) -> PendingGang:
        key = (-priority(gang), age(gang), gang.name, gang.members[0].uid)
        entry = PendingGang(key, self._forms.setdefault(shape(gang), len(self._forms)), gang)
        insort(self._by_form.setdefault(entry.form, []), entry, key=_key)
        return entry

    def _leave(self, entry: PendingGang) -> None:
        entries = self._by_form[entry.form]
        del entries[bisect_left(entries, entry.key, key=_key)]
        if not entries:
            del self._by_form[entry.form]


class QueuePass:
    """One walk along the line, by priority, age and name (`scheduler.order`)."""

    def __init__(self, line: PendingQueue, heads: list[PendingGang]) -> None:
        self._line, self._ahead = line, heads
        self._last: PendingGang | None = None
        heapify(self._ahead)

    def step(self) -> PendingGang | None:
        """Return who is next; None at the end."""
        while self._ahead:
            entry = heappop(self._ahead)
            if entry is not self._last:
                self._last = entry
                return entry
        return None

    def go_on(self, entry: PendingGang) -> None:
        """Let the next who asks for the same as `entry` have a try."""
        behind = self._line.after(entry)
        if behind is not None:
            heappush(self._ahead, behind)


def _key(entry: PendingGang) -> Key:
    return entry.key
