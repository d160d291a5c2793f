"""Check whether a workload's queue or namespace holds more GPUs than its nominal quota."""

from collections.abc import Mapping
from datetime import datetime
from functools import cache
from typing import Any

from fallow.protocols import Views
from fallow.resources import read_text

OF_NAMESPACES = "ElasticQuota"
"""Kinds with these prefixes guarantee GPUs to a namespace; a ResourceQuota guarantees nothing."""
Row = Mapping[str, Any]


class Quotas:
    """What quotas and queues held at a given time, from their last observed state before it."""

    def __init__(self, views: Views, now: datetime) -> None:
        rows = views.query(_load_sql(), {"until": now}).to_pylist()
        self._named = {(r["cluster"], r["kind"], r["namespace"], r["name"]): r for r in rows}
        self._queues: dict[tuple[str, str], list[Row]] = {}
        self._spaces: dict[tuple[str, str], list[Row]] = {}
        for row in rows:
            if row["kind"].startswith(OF_NAMESPACES):
                self._spaces.setdefault((row["cluster"], row["namespace"]), []).append(row)
            elif not row["namespace"] and row["kind"] != "Cohort":
                self._queues.setdefault((row["cluster"], row["name"]), []).append(row)

    def over(self, cluster: str, namespace: str, queue: str | None) -> bool | None:
        """Return whether more is held than guaranteed.

        None = no quota applies, or a figure is unknown.

        A Kueue workload names the LocalQueue of its namespace, which names the ClusterQueue.
        """
        if queue is None:
            return _combine_all(self._spaces.get((cluster, namespace), []))
        local = self._named.get((cluster, "LocalQueue", namespace, queue))
        if local is not None:
            name = (cluster, "ClusterQueue", "", str(local["parent"]))
            return _combine_all([self._named[name]] if name in self._named else [])
        return _combine_all(self._queues.get((cluster, queue), []))


def _combine_all(rows: list[Row]) -> bool | None:
    """Return the common answer; None where there is none, or the answers differ."""
    answers = {row["over"] for row in rows}
    return answers.pop() if len(answers) == 1 else None


@cache
def _load_sql() -> str:
    return read_text("actions.facts", "quotas.sql").strip()
