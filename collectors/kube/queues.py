"""Find the queue of a pod: from labels, else from its scheduler's group or workload object.

Workloads and groups that are not admitted have no pods: their requests are summed by queue.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from functools import cache
from typing import Any

from collectors.kube.shapes import CustomObject, Meta
from collectors.kube.table import parse_table
from fallow.kube.quantities import parse_quantity

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
            if queue and _map(group.status).get("phase") in _WAITING_GROUPS:
                minimum = _map(_map(group.spec).get("minResources"))
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
            queued = _find_queued(workload)
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
    if _map(workload.status).get("admission") or _map(workload.spec).get("active") is False:
        return False
    conditions = _map(workload.status).get("conditions")
    return not any(
        _map(c).get("type") == "Finished" and _map(c).get("status") == "True"
        for c in (conditions if isinstance(conditions, list) else ())
    )


def _find_queued(workload: CustomObject) -> datetime | None:
    """Return when a Workload was put into its queue, the last time that it was."""
    conditions = _map(workload.status).get("conditions")
    for condition in _list_maps(conditions):
        if condition.get("type") == "Requeued" and condition.get("status") == "True":
            with suppress(ValueError):
                return datetime.fromisoformat(str(condition.get("lastTransitionTime")))
    return workload.metadata.creation_timestamp


def _sum_requested_resources(workload: CustomObject) -> Counter[str]:
    """Sum the requests of the containers of a Workload's pods; a missing request is the limit."""
    total: Counter[str] = Counter()
    for pod_set in _list_maps(_map(workload.spec).get("podSets")):
        count = pod_set.get("count")
        spec = _map(_map(pod_set.get("template")).get("spec"))
        for container in _list_maps(spec.get("containers")):
            resources = _map(container.get("resources"))
            both = {**_map(resources.get("limits")), **_map(resources.get("requests"))}
            for name, amount in _parse_amounts(both).items():
                total[name] += amount * (count if isinstance(count, int) else 1)  # type: ignore[assignment]
    return total


def _parse_amounts(resources: Mapping[str, Any]) -> dict[str, float]:
    read = {n: parse_quantity(v) for n, v in resources.items() if isinstance(v, (str, int, float))}
    return {name: float(amount) for name, amount in read.items() if amount is not None}


def _map(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _list_maps(value: object) -> Iterator[Mapping[str, Any]]:
    yield from (v for v in value if isinstance(v, dict)) if isinstance(value, list) else ()
