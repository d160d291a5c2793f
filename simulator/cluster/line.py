"""Pods that wait, kept in the order in which the scheduler tries them."""

from bisect import bisect_left, insort
from collections.abc import Mapping

from simulator.cluster.evictions import Shape, shape
from simulator.cluster.scheduler.order import gangs
from simulator.cluster.scheduler.requests import Gang, PodRequest

Key = tuple[int, float, str, str]


class Line:
    """Pending pods; lone ones stand in order already, gangs are put together when asked."""

    def __init__(self) -> None:
        self._pods: dict[str, PodRequest] = {}
        self._lone: list[tuple[Key, Gang, Shape]] = []
        self._ganged: dict[str, PodRequest] = {}

    def __contains__(self, pod_uid: object) -> bool:
        return pod_uid in self._pods

    def __len__(self) -> int:
        return len(self._pods)

    def add(self, pod: PodRequest) -> None:
        """Let a pod wait."""
        self._pods[pod.uid] = pod
        if pod.gang:
            self._ganged[pod.uid] = pod
        else:
            one = Gang(pod.name, (pod,))
            insort(self._lone, (_key(pod), one, shape(one)), key=lambda entry: entry[0])

    def remove(self, pod_uid: str) -> None:
        """Let a pod wait no more."""
        pod = self._pods.pop(pod_uid, None)
        if pod is not None and self._ganged.pop(pod_uid, None) is None:
            del self._lone[bisect_left(self._lone, _key(pod), key=lambda entry: entry[0])]

    def ordered(self, least: Mapping[str, int]) -> list[tuple[Gang, Shape]]:
        """Return gangs and lone pods by priority, age and name (`scheduler.order`)."""
        if not self._ganged:
            return [(one, form) for _, one, form in self._lone]
        return [(one, shape(one)) for one in gangs(self._pods.values(), least)]


def _key(pod: PodRequest) -> Key:
    return (-pod.priority, pod.created_s, pod.name, pod.uid)
