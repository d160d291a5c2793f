"""Keep pending pods in the order in which the scheduler tries them.

Most pods of a long queue wait for what the first pod of their kind could not get either. So the
queue is kept by kind: a turn tries the first of each kind, and the next when the first was placed.
It also tries pods that have no reason for their wait yet.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Mapping
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from simulator.cluster.preemption import Shape, build_shape
from simulator.cluster.scheduler.order import get_creation, get_priority, sort_gangs
from simulator.cluster.scheduler.requests import PodGang, PodRequest

Key = tuple[int, float, str, str]


class PendingGang(NamedTuple):
    """A pending pod or gang; it comes before those with a greater key."""

    key: Key
    form: int
    """The same number for all that fail for the same reason (`evictions.shape`)."""
    gang: PodGang


class PendingQueue:
    """Pending pods; the order is computed again only where pods were added or removed."""

    def __init__(self) -> None:
        self._pods: dict[str, PodRequest] = {}
        self._alone: dict[str, PendingGang] = {}
        self._ganged: dict[str, dict[str, PodRequest]] = {}
        """By gang, then uid."""
        self._gang_entries: dict[str, PendingGang | None] = {}
        """Complete gangs; None where too few of a gang's pods are pending."""
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
        """Add a pending pod."""
        self._pods[pod.uid] = pod
        if pod.uid not in self._notified:
            self._not_notified[pod.uid] = None
        if pod.gang:
            self._part(pod.gang)
            self._ganged.setdefault(pod.gang, {})[pod.uid] = pod
        else:
            self._alone[pod.uid] = self._stand(PodGang(pod.name, (pod,)))

    def remove(self, pod_uid: str) -> None:
        """Remove a pending pod."""
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
        """Record that a pod has its reason for waiting; return whether it had none before."""
        new = pod_uid not in self._notified
        self._notified.add(pod_uid)
        self._not_notified.pop(pod_uid, None)
        return new

    def forget(self, pod_uid: str) -> None:
        """Report the reason again when a pod waits again."""
        self._notified.discard(pod_uid)

    def turn(self, min_members: Mapping[str, int]) -> "QueuePass":
        """Begin a turn; `min_members` is by gang (PodGroup `minMember`)."""
        if min_members != self._min_members:
            self._min_members = min_members
            for gang_name in list(self._gang_entries):
                self._part(gang_name)
        for gang_name in self._ganged.keys() - self._gang_entries.keys():
            complete_gangs = sort_gangs(self._ganged[gang_name].values(), min_members)
            self._gang_entries[gang_name] = (
                self._stand(complete_gangs[0]) if complete_gangs else None
            )
        heads = [entries[0] for entries in self._by_form.values()]
        heads += [entry for uid in self._not_notified if (entry := self._entry(uid)) is not None]
        return QueuePass(self, heads)

    def after(self, entry: PendingGang) -> PendingGang | None:
        """Return the next after an entry, or after its empty place, with the same request."""
        entries = self._by_form.get(entry.form, [])
        place = bisect_right(entries, entry.key, key=_build_key)
        return entries[place] if place < len(entries) else None

    def _entry(self, pod_uid: str) -> PendingGang | None:
        gang_name = self._pods[pod_uid].gang
        return self._gang_entries[gang_name] if gang_name else self._alone[pod_uid]

    def _part(self, gang_name: str) -> None:
        entry = self._gang_entries.pop(gang_name, None)
        if entry is not None:
            self._leave(entry)

    def _stand(self, gang: PodGang) -> PendingGang:
        key = (-get_priority(gang), get_creation(gang), gang.name, gang.members[0].uid)
        entry = PendingGang(key, self._forms.setdefault(build_shape(gang), len(self._forms)), gang)
        insort(self._by_form.setdefault(entry.form, []), entry, key=_build_key)
        return entry

    def _leave(self, entry: PendingGang) -> None:
        entries = self._by_form[entry.form]
        del entries[bisect_left(entries, entry.key, key=_build_key)]
        if not entries:
            del self._by_form[entry.form]


class QueuePass:
    """One pass over the queue, by priority, age and name (`scheduler.order`)."""

    def __init__(self, line: PendingQueue, heads: list[PendingGang]) -> None:
        self._line, self._ahead = line, heads
        self._last: PendingGang | None = None
        heapify(self._ahead)

    def step(self) -> PendingGang | None:
        """Return the next entry; None at the end."""
        while self._ahead:
            entry = heappop(self._ahead)
            if entry is not self._last:
                self._last = entry
                return entry
        return None

    def go_on(self, entry: PendingGang) -> None:
        """Let the next entry with the same request as `entry` be tried."""
        behind = self._line.after(entry)
        if behind is not None:
            heappush(self._ahead, behind)


def _build_key(entry: PendingGang) -> Key:
    return entry.key
