"""Check whether quotas and queues would let a pending workload in."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from fallow.protocols import Views
from fallow.resources import read_text

_ALMOST = 1e-6
_LIMITS = ("ResourceQuota", "ElasticQuota")
"""Kinds of quotas that hold for every pod of their namespace."""


class QuotaAnswer(NamedTuple):
    """Whether a workload is let in; None = unknown. `why`: what refuses it, or is not known."""

    admitted: bool | None
    why: str = ""


class QuotaRoom:
    """The room that quotas had when they were last read before a given time."""

    def __init__(self, views: Views, now: datetime) -> None:
        sql = read_text("warehouse.placement", "quota_room.sql").strip()
        self._rows = views.query(sql, {"until": now}).to_pylist()

    def admits(
        self, cluster: str, namespace: str, queue: str | None, needs: Mapping[str, float]
    ) -> QuotaAnswer:
        """Return whether a cluster's quotas let these devices in; `needs` is by resource.

        A namespace without a quota, and a workload without a queue, are let in.
        """
        answers = [
            self._compare(rows, needs, label=f"{kind} {namespace}/{name}", borrows=False)
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

    def _check_queue(
        self, cluster: str, namespace: str, queue: str, needs: Mapping[str, float]
    ) -> QuotaAnswer:
        """Return the answer of a queue; a Kueue workload names the LocalQueue of its namespace."""
        local = self._group(cluster, namespace).get(("LocalQueue", queue))
        name, spaces = (str(local[0]["parent"]), "") if local else (queue, "")
        rows = [
            row
            for (kind, row_name), queue_rows in self._group(cluster, spaces).items()
            if row_name == name and kind not in {"Cohort", *_LIMITS}
            for row in queue_rows
        ]
        if not rows:
            return QuotaAnswer(None, f"cluster {cluster} has no queue {queue} that was read lately")
        return self._compare(rows, needs, label=f"queue {name}", borrows=True)

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
        borrows: bool,
    ) -> QuotaAnswer:
        """Compare needs with the room of one quota; a flavor of a Kueue queue has its own row."""
        unknown = QuotaAnswer(admitted=True)
        for resource, need in needs.items():
            mine = [row for row in rows if row["resource"] == resource]
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
