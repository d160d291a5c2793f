"""Find the queue of a pod: from labels, else from its scheduler's group or workload object.

Workloads and groups that are not admitted have no pods: their requests are summed by queue.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import datetime
from functools import cache
from typing import Any

from collectors.kube.shapes import CustomObject, Meta
from collectors.kube.table import parse_table
from fallow.kube.values import get_map, list_maps, parse_number

_GROUP_ANNOTATIONS = ("scheduling.k8s.io/group-name", "pod-group-name")
_KUEUE_OWNER = "kueue.x-k8s.io/job-uid"
_WAITING_GROUPS = {"Pending", "Inqueue"}
"""Phases of a Volcano PodGroup that is not admitted yet."""


class Queues:
    """Queues by PodGroup (Volcano, KAI) and by owner's UID (Kueue workloads)."""

    def __init__(self) -> None:
        self._by_group: dict[tuple[str, str], str] = {}
        self._by_owner: dict[str, str] = {}
        self._queued: dict[str, datetime] = {}
        self._waiting: dict[tuple[str, str, str], Counter[str]] = {}

    def add_groups(self, groups: Iterable[CustomObject]) -> None:
        """Store the queue of each PodGroup."""
        for group in groups:
            queue = (group.spec or {}).get("queue")
            if queue:
                self._by_group[group.metadata.namespace, group.metadata.name] = str(queue)
            if queue and str(get_map(group.status).get("phase")) in _WAITING_GROUPS:
                minimum = get_map(get_map(group.spec).get("minResources"))
                self._wait("Queue.volcano", "", str(queue), _parse_amounts(minimum))

    def add_workloads(self, workloads: Iterable[CustomObject]) -> None:
        """Store the queue of each Kueue Workload's owner."""
        for workload in workloads:
            queue = (workload.spec or {}).get("queueName")
            if not queue:
                continue
            meta = workload.metadata
            if _is_waiting(workload):
                self._wait(
                    "LocalQueue", meta.namespace, str(queue), _sum_requested_resources(workload)
                )
            owners = {(meta.labels or {}).get(_KUEUE_OWNER)}
            owners |= {ref.uid for ref in meta.owner_references or ()}
            self._by_owner.update({uid: str(queue) for uid in owners if uid})
            queued = find_queued(workload)
            if queued is not None:
                self._queued.update({uid: queued for uid in owners if uid})

    def waiting(self, kind: str, namespace: str, name: str) -> Mapping[str, float]:
        """Return what a queue's pending workloads request, by resource."""
        return self._waiting.get((kind, namespace, name), {})

    def _wait(self, kind: str, namespace: str, name: str, requested: Mapping[str, float]) -> None:
        waiting_amounts = self._waiting.setdefault((kind, namespace, name), Counter())
        for resource, amount in requested.items():
            waiting_amounts[resource] += amount  # type: ignore[assignment]

    def get_queued(self, pod: Meta, top_uid: str | None) -> datetime | None:
        """Return when a pod's Kueue workload began to wait; None = it has none that is listed."""
        for uid in (top_uid, pod.uid, *(r.uid for r in pod.owner_references or ())):
            if uid and uid in self._queued:
                return self._queued[uid]
        return None

    def of(self, pod: Meta, top_uid: str | None) -> str | None:
        """Return the queue of a pod by the UID of its topmost owner."""
        labels, annotations = pod.labels or {}, pod.annotations or {}
        for source, key in _list_keys():
            metadata_map = labels if source == "label" else annotations
            if metadata_map.get(key):
                return metadata_map[key]
        for key in _GROUP_ANNOTATIONS:
            queue = self._by_group.get((pod.namespace, annotations.get(key, "")))
            if queue:
                return queue
        for uid in (top_uid, pod.uid, *(r.uid for r in pod.owner_references or ())):
            if uid and uid in self._by_owner:
                return self._by_owner[uid]
        return None


@cache
def _list_keys() -> tuple[tuple[str, str], ...]:
    return tuple((row["source"], row["key"]) for row in parse_table("queue_labels"))


def _is_waiting(workload: CustomObject) -> bool:
    """Return whether a Kueue Workload is pending: not admitted, not finished, not deactivated."""
    if get_map(workload.status).get("admission") or get_map(workload.spec).get("active") is False:
        return False
    return not any(
        c.get("type") == "Finished" and c.get("status") == "True"
        for c in list_maps(get_map(workload.status).get("conditions"))
    )


def find_queued(workload: CustomObject) -> datetime | None:
    """Return when a Workload was put into its queue, the last time that it was.

    An evicted one waits from its eviction on.
    """
    conditions = list_maps(get_map(workload.status).get("conditions"))
    for kind in ("Requeued", "Evicted"):
        for condition in conditions:
            if condition.get("type") == kind and condition.get("status") == "True":
                with suppress(ValueError):
                    return datetime.fromisoformat(str(condition.get("lastTransitionTime")))
    return workload.metadata.creation_timestamp


def _sum_requested_resources(workload: CustomObject) -> Counter[str]:
    """Sum the requests of the containers of a Workload's pods; a missing request is the limit."""
    total: Counter[str] = Counter()
    for pod_set in list_maps(get_map(workload.spec).get("podSets")):
        count = pod_set.get("count")
        spec = get_map(get_map(pod_set.get("template")).get("spec"))
        for container in list_maps(spec.get("containers")):
            resources = get_map(container.get("resources"))
            both = {**get_map(resources.get("limits")), **get_map(resources.get("requests"))}
            for name, amount in _parse_amounts(both).items():
                total[name] += amount * (count if isinstance(count, int) else 1)  # type: ignore[assignment]
    return total


def _parse_amounts(resources: Mapping[str, Any]) -> dict[str, float]:
    read = {name: parse_number(value) for name, value in resources.items()}
    return {name: amount for name, amount in read.items() if amount is not None}
