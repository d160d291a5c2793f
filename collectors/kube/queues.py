"""Which queue a pod waits in: labels first, then the group or workload a scheduler made of it."""

from collections.abc import Iterable
from functools import cache

from collectors.kube.shapes import Custom, Meta
from collectors.kube.table import table

_GROUP_ANNOTATIONS = ("scheduling.k8s.io/group-name", "pod-group-name")
_KUEUE_OWNER = "kueue.x-k8s.io/job-uid"


class Queues:
    """Queues by PodGroup (Volcano, KAI) and by owner's UID (Kueue workloads)."""

    def __init__(self) -> None:
        self._by_group: dict[tuple[str, str], str] = {}
        self._by_owner: dict[str, str] = {}

    def add_groups(self, groups: Iterable[Custom]) -> None:
        """Remember the queue of each PodGroup."""
        for group in groups:
            queue = (group.spec or {}).get("queue")
            if queue:
                self._by_group[group.metadata.namespace, group.metadata.name] = str(queue)

    def add_workloads(self, workloads: Iterable[Custom]) -> None:
        """Remember the queue of each Kueue Workload's owner."""
        for workload in workloads:
            queue = (workload.spec or {}).get("queueName")
            if not queue:
                continue
            meta = workload.metadata
            owners = {(meta.labels or {}).get(_KUEUE_OWNER)}
            owners |= {ref.uid for ref in meta.owner_references or ()}
            self._by_owner.update({uid: str(queue) for uid in owners if uid})

    def of(self, pod: Meta, top_uid: str | None) -> str | None:
        """Return the queue of a pod whose topmost owner has that UID."""
        labels, annotations = pod.labels or {}, pod.annotations or {}
        for source, key in _keys():
            words = labels if source == "label" else annotations
            if words.get(key):
                return words[key]
        for key in _GROUP_ANNOTATIONS:
            found = self._by_group.get((pod.namespace, annotations.get(key, "")))
            if found:
                return found
        for uid in (top_uid, pod.uid, *(r.uid for r in pod.owner_references or ())):
            if uid and uid in self._by_owner:
                return self._by_owner[uid]
        return None


@cache
def _keys() -> tuple[tuple[str, str], ...]:
    return tuple((row["source"], row["key"]) for row in table("queue_labels"))
