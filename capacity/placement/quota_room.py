"""Check whether quotas and queues would let a pending workload in."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from fallow.protocols import Views
from fallow.resources import read_text

_ALMOST = 1e-6
_SIBLING = ("cluster", "kind", "parent", "resource", "flavor")
"""What queues that lend to each other have in common."""
_LIMITS = ("ResourceQuota", "ElasticQuota")
"""Kinds of quotas that hold for every pod of their namespace."""


class QuotaAnswer(NamedTuple):
    """Whether a workload is let in; None = unknown. `why`: what refuses it, or is not known."""

    admitted: bool | None
    why: str = ""


class BorrowAnswer(NamedTuple):
    """Whether a queue may borrow what it lacks; None = unknown. `lenders`: queues, by name."""

    admitted: bool | None
    why: str = ""
    lenders: tuple[str, ...] = ()


class ResourceGroup(NamedTuple):
    """Resources of a queue that get the same flavor, and the flavors among which Kueue chooses."""

    resources: frozenset[str]
    flavors: tuple[str, ...]


class QuotaRoom:
    """The room that quotas had when they were last read before a given time."""

    def __init__(self, views: Views, now: datetime) -> None:
        sql = read_text("capacity.placement", "quota_room.sql").strip()
        self._rows = views.query(sql, {"until": now}).to_pylist()

    def list_groups(self, cluster: str, namespace: str, queue: str) -> list[ResourceGroup]:
        """Return the resource groups of a queue, by the names of their flavors; none = no flavors.

        A flavor of Kueue is in one group of a queue, and a group has each flavor for all of its
        resources.
        """
        resources: dict[str, set[str]] = {}
        for row in self._list_queue_rows(cluster, namespace, queue):
            if row["flavor"]:
                resources.setdefault(row["flavor"], set()).add(row["resource"])
        groups: dict[frozenset[str], list[str]] = {}
        for flavor, covered in sorted(resources.items()):
            groups.setdefault(frozenset(covered), []).append(flavor)
        return [ResourceGroup(covered, tuple(names)) for covered, names in groups.items()]

    def admits(
        self, cluster: str, namespace: str, queue: str | None, needs: Mapping[str, float]
    ) -> QuotaAnswer:
        """Return whether a cluster's quotas let these devices in.

        `needs` is by resource, or by `resource@flavor`: then only the queue's quota of that flavor
        counts. A namespace without a quota, and a workload without a queue, are let in.
        """
        answers = [
            self._compare(rows, _sum_flavors(needs), label=f"{kind} {namespace}/{name}")
            for (kind, name), rows in self._group(cluster, namespace).items()
            if kind in _LIMITS
        ]
        if queue is not None:
            answers.append(self._check_queue(cluster, namespace, queue, needs))
        for wanted in (False, None):
            for answer in answers:
                if answer.admitted is wanted:
                    return answer
        return QuotaAnswer(admitted=True)

    def find_lenders(
        self, cluster: str, namespace: str, queue: str, needs: Mapping[str, float]
    ) -> BorrowAnswer:
        """Return whether a queue may borrow what it lacks of its own quota, and from whom.

        Lenders are queues of the same cohort or parent, of the same kind and flavor, as far as
        their nominal quota is unused and may be lent. `needs` is as for `admits`.
        """
        rows = self._list_queue_rows(cluster, namespace, queue)
        lenders: dict[str, None] = {}
        for resource, need in needs.items():
            mine = _select_rows(rows, resource)
            answers = [self._borrow(row, need) for row in mine]
            best = next((a for a in answers if a.admitted), None)
            if mine and best is None:
                return next((a for a in answers if a.admitted is None), answers[0])
            lenders.update(dict.fromkeys(best.lenders if best else ()))
        if not rows:
            return BorrowAnswer(
                None, f"cluster {cluster} has no queue {queue} that was read lately"
            )
        return BorrowAnswer(admitted=True, lenders=tuple(lenders))

    def _borrow(self, row: Mapping[str, Any], need: float) -> BorrowAnswer:
        label = f"queue {row['name']}"
        if row["nominal_room"] is None:
            return BorrowAnswer(None, f"how much {label} uses of {row['resource']} is not known")
        lack = need - max(0.0, row["nominal_room"])
        if lack <= _ALMOST:
            return BorrowAnswer(admitted=True)
        if row["limit_room"] is not None and row["limit_room"] < need - _ALMOST:
            room = max(0.0, row["limit_room"])
            why = f"{label} may have {room:g} more at most, it needs {need:g}"
        elif row["parent"] is None and row["kind"] == "ClusterQueue":
            why = f"{label} is in no cohort from which it could borrow"
        else:
            return self._check_lenders(row, lack)
        return BorrowAnswer(admitted=False, why=why)

    def _check_lenders(self, row: Mapping[str, Any], lack: float) -> BorrowAnswer:
        """Return whether the other queues of its cohort or parent leave enough unused."""
        rooms = {
            other["name"]: _compute_lent(other)
            for other in self._rows
            if other["name"] != row["name"] and all(other[same] == row[same] for same in _SIBLING)
        }
        lent = sum(room or 0.0 for room in rooms.values())
        if lent >= lack - _ALMOST:
            lenders = tuple(name for name, room in rooms.items() if room)
            return BorrowAnswer(admitted=True, lenders=lenders)
        label = f"queue {row['name']}"
        if None in rooms.values():
            return BorrowAnswer(None, f"what the cohort of {label} uses is not known")
        why = f"{label} lacks {lack:g}, the others of its cohort leave {lent:g} unused"
        return BorrowAnswer(admitted=False, why=why)

    def _list_queue_rows(self, cluster: str, namespace: str, queue: str) -> list[dict[str, Any]]:
        """Return the rows of a queue; a Kueue workload names the LocalQueue of its namespace."""
        local = self._group(cluster, namespace).get(("LocalQueue", queue))
        name, spaces = (str(local[0]["parent"]), "") if local else (queue, "")
        return [
            row
            for (kind, row_name), queue_rows in self._group(cluster, spaces).items()
            if row_name == name and kind not in {"Cohort", *_LIMITS}
            for row in queue_rows
        ]

    def _check_queue(
        self, cluster: str, namespace: str, queue: str, needs: Mapping[str, float]
    ) -> QuotaAnswer:
        """Return the answer of a queue."""
        rows = self._list_queue_rows(cluster, namespace, queue)
        if not rows:
            return QuotaAnswer(None, f"cluster {cluster} has no queue {queue} that was read lately")
        return self._compare(rows, needs, label=f"queue {rows[0]['name']}", borrows=True)

    def _group(self, cluster: str, namespace: str) -> dict[tuple[str, str], list[dict[str, Any]]]:
        groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
        for row in self._rows:
            if (row["cluster"], row["namespace"]) == (cluster, namespace):
                groups.setdefault((row["kind"], row["name"]), []).append(row)
        return groups

    def _compare(
        self,
        rows: list[dict[str, Any]],
        needs: Mapping[str, float],
        *,
        label: str,
        borrows: bool = False,
    ) -> QuotaAnswer:
        """Compare needs with the room of one quota; a flavor of a Kueue queue has its own row."""
        unknown = QuotaAnswer(admitted=True)
        for resource, need in needs.items():
            mine = _select_rows(rows, resource)
            if not mine:
                continue  # it does not limit this resource
            rooms = [row["nominal_room"] for row in mine]
            if any(room is not None and room >= need - _ALMOST for room in rooms):
                continue
            if None in rooms:
                unknown = QuotaAnswer(None, f"how much {label} uses of {resource} is not known")
                continue
            caps = [row["limit_room"] for row in mine]
            if borrows and any(cap is None or cap >= need - _ALMOST for cap in caps):
                unknown = QuotaAnswer(None, f"{label} would have to borrow {resource}")
                continue
            room = max([0.0, *rooms])
            return QuotaAnswer(
                admitted=False, why=f"{label} leaves {room:g} of {resource}, it needs {need:g}"
            )
        return unknown


def _compute_lent(row: Mapping[str, Any]) -> float | None:
    """Return how much of a queue's unused quota others may use; None = unknown."""
    room: float | None = row["nominal_room"]
    if room is None:
        return None
    return max(0.0, room if row["lending"] is None else min(room, row["lending"]))


def split_resource(name: str) -> tuple[str, str]:
    """Return a resource and its flavor, empty = of any."""
    resource, _, flavor = name.partition("@")
    return resource, flavor


def _sum_flavors(needs: Mapping[str, float]) -> Mapping[str, float]:
    """Return needs by resource, over all flavors."""
    sums: dict[str, float] = {}
    for name, need in needs.items():
        resource, _ = split_resource(name)
        sums[resource] = sums.get(resource, 0.0) + need
    return sums


def _select_rows(rows: Sequence[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    """Return the rows of a resource: those of its flavor and those without any, or all."""
    resource, flavor = split_resource(name)
    return [
        row
        for row in rows
        if row["resource"] == resource and (not flavor or row["flavor"] in {"", flavor})
    ]
