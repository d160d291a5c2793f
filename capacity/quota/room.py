"""Check whether quotas and queues would let a pending workload in."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache
from math import inf
from typing import NamedTuple

from capacity.quota.tree import QuotaNode, QuotaTree
from fallow.protocols import Views
from fallow.resources import read_text
from fallow.rows import Row, decode_rows

_ALMOST = 1e-6
_LIMITS = ("ResourceQuota", "ElasticQuota")
"""Kinds of quotas that hold for every pod of their namespace."""
_COHORT = "Cohort"


class QuotaRow(Row, frozen=True):
    """A quota of one resource (`quota_room.sql`); `limit` None = it may have all that is left."""

    cluster: str
    kind: str
    namespace: str
    name: str
    resource: str
    flavor: str
    parent: str | None
    nominal: float | None
    used: float | None
    limit: float | None
    lending: float | None

    @property
    def nominal_room(self) -> float | None:
        """Its unused nominal quota; None = unknown."""
        return None if self.nominal is None or self.used is None else self.nominal - self.used

    @property
    def limit_room(self) -> float | None:
        """What is left below its limit; None = it has none, or its use is unknown."""
        return None if self.limit is None or self.used is None else self.limit - self.used


class QuotaAnswer(NamedTuple):
    """Whether a workload is let in; None = unknown. `why`: what refuses it, or is not known."""

    admitted: bool | None
    why: str = ""
    is_final: bool = False
    """What refuses it is no amount: no higher quota would let it in."""


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
        sql = read_text("capacity.quota", "quota_room.sql").strip()
        self._rows = [*decode_rows(views.query(sql, {"until": now}), QuotaRow)]
        self._build_trees = cache(self._read_trees)

    def list_groups(self, cluster: str, namespace: str, queue: str) -> list[ResourceGroup]:
        """Return the resource groups of a queue, by the names of their flavors; none = no flavors.

        A flavor of Kueue is in one group of a queue, and a group has each flavor for all of its
        resources.
        """
        resources: dict[str, set[str]] = {}
        for row in self._list_queue_rows(cluster, namespace, queue):
            if row.flavor:
                resources.setdefault(row.flavor, set()).add(row.resource)
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

        Lenders are queues and cohorts of its tree, of the same kind and flavor, as far as their
        nominal quota is unused and may be lent. `needs` is as for `admits`.
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

    def _borrow(self, row: QuotaRow, need: float) -> BorrowAnswer:
        label = f"queue {row.name}"
        if row.nominal_room is None:
            return BorrowAnswer(None, f"how much {label} uses of {row.resource} is not known")
        lack = need - max(0.0, row.nominal_room)
        if lack <= _ALMOST:
            return BorrowAnswer(admitted=True)
        if row.limit_room is not None and row.limit_room < need - _ALMOST:
            why = f"{label} may have {max(0.0, row.limit_room):g} more at most, it needs {need:g}"
        elif row.parent is None and row.kind == "ClusterQueue":
            why = f"{label} is in no cohort from which it could borrow"
        else:
            return self._check_cohort(row, need, lack)
        return BorrowAnswer(admitted=False, why=why)

    def _check_cohort(self, row: QuotaRow, need: float, lack: float) -> BorrowAnswer:
        """Return whether its cohorts leave enough; what unknown use leaves is not known."""
        least, most = self._build_trees(row.cluster, row.kind, row.resource, row.flavor)
        room = float(least.room(row.name))
        if room >= need - _ALMOST:
            return BorrowAnswer(admitted=True, lenders=tuple(least.list_lenders(row.name)))
        label = f"queue {row.name}"
        if most.room(row.name) >= need - _ALMOST:
            return BorrowAnswer(None, f"what the cohort of {label} uses is not known")
        lent = max(0.0, room - max(0.0, row.nominal_room or 0.0))
        why = f"{label} lacks {lack:g}, the others of its cohort leave {lent:g} unused"
        return BorrowAnswer(admitted=False, why=why)

    def _read_trees(
        self, cluster: str, kind: str, resource: str, flavor: str
    ) -> tuple[QuotaTree, QuotaTree]:
        """Return the tree of a resource with unknown use as the whole quota, and as none."""
        rows = [row for row in self._rows if row.cluster == cluster]
        mine = [row for row in rows if (row.resource, row.flavor) == (resource, flavor)]
        queues = [row for row in mine if row.kind == kind]
        nodes = {row.name: _build_node(row, own=True) for row in queues}
        if kind == "ClusterQueue":
            for own, of_cohorts in ((False, rows), (True, mine)):
                nodes |= {
                    _name_cohort(row.name): _build_node(row, own=own)
                    for row in of_cohorts
                    if row.kind == _COHORT
                }
        least, most = QuotaTree(nodes), QuotaTree(nodes)
        for row in queues:
            least.use(row.name, row.nominal or 0.0 if row.used is None else row.used)
            most.use(row.name, row.used or 0.0)
        return least, most

    def _list_queue_rows(self, cluster: str, namespace: str, queue: str) -> list[QuotaRow]:
        """Return the rows of a queue; a Kueue workload names the LocalQueue of its namespace."""
        local = self._group(cluster, namespace).get(("LocalQueue", queue))
        name = str(local[0].parent) if local else queue
        return [
            row
            for (kind, row_name), queue_rows in self._group(cluster, "").items()
            if row_name == name and kind not in {_COHORT, *_LIMITS}
            for row in queue_rows
        ]

    def _check_queue(
        self, cluster: str, namespace: str, queue: str, needs: Mapping[str, float]
    ) -> QuotaAnswer:
        """Return the answer of a queue."""
        rows = self._list_queue_rows(cluster, namespace, queue)
        if not rows:
            return QuotaAnswer(None, f"cluster {cluster} has no queue {queue} that was read lately")
        return self._compare(rows, needs, label=f"queue {rows[0].name}", borrows=True)

    def _group(self, cluster: str, namespace: str) -> dict[tuple[str, str], list[QuotaRow]]:
        groups: dict[tuple[str, str], list[QuotaRow]] = {}
        for row in self._rows:
            if (row.cluster, row.namespace) == (cluster, namespace):
                groups.setdefault((row.kind, row.name), []).append(row)
        return groups

    def _compare(
        self, rows: list[QuotaRow], needs: Mapping[str, float], *, label: str, borrows: bool = False
    ) -> QuotaAnswer:
        """Compare needs with the room of one quota; a flavor of a Kueue queue has its own row."""
        unknown = QuotaAnswer(admitted=True)
        for resource, need in needs.items():
            mine = _select_rows(rows, resource)
            if not mine:
                continue  # it does not limit this resource
            rooms = [row.nominal_room for row in mine]
            if any(room is not None and room >= need - _ALMOST for room in rooms):
                continue
            if None in rooms:
                unknown = QuotaAnswer(None, f"how much {label} uses of {resource} is not known")
                continue
            caps = [row.limit_room for row in mine]
            if borrows and any(cap is None or cap >= need - _ALMOST for cap in caps):
                unknown = QuotaAnswer(None, f"{label} would have to borrow {resource}")
                continue
            room = max([0.0, *(room for room in rooms if room is not None)])
            return QuotaAnswer(
                admitted=False, why=f"{label} leaves {room:g} of {resource}, it needs {need:g}"
            )
        return unknown


def _name_cohort(name: str) -> str:
    return f"cohort {name}"


def _build_node(row: QuotaRow, *, own: bool) -> QuotaNode:
    """Return the node of a row; `own`: its amounts are of the tree's resource."""
    if row.kind in {_COHORT, "ClusterQueue"}:
        parent = row.parent and _name_cohort(row.parent)
    else:
        parent = _name_cohort(f"of {row.kind} {row.parent or ''}")
    if not own:
        return QuotaNode(parent=parent or "")
    nominal = row.nominal or 0.0
    borrowing = inf if row.limit is None else max(0.0, row.limit - nominal)
    return QuotaNode(nominal, borrowing, inf if row.lending is None else row.lending, parent or "")


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


def _select_rows(rows: Sequence[QuotaRow], name: str) -> list[QuotaRow]:
    """Return the rows of a resource: those of its flavor and those without any, or all."""
    resource, flavor = split_resource(name)
    return [
        row
        for row in rows
        if row.resource == resource and (not flavor or row.flavor in {"", flavor})
    ]
