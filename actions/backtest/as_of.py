"""Query the site's data as of a past time: rows written or dated later are left out.

What a node was is in its eras, its readiness by events, the phase of a pod by its timestamps, its
team, queue, labels and annotations by their eras: before the first observation they are those of
the first. A pod's priority cannot change. A disruption budget is there from its creation on; what
it asks and how many pods may go are stored in their last state only.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from fallow.protocols import Views
from fallow.tables import list_columns
from warehouse.eras import VALUES

_TIME_COLUMNS = {
    "sample": "ts", "holding": "ts", "scrape": "ts", "pod_sample": "ts", "notebook_sample": "ts",
    "container_sample": "ts",
    "latency_sample": "ts", "step_sample": "ts", "progress_sample": "ts", "event": "ts",
    "quota": "ts", "disruption_budget": "first_seen",
    "finding": "found_at", "action": "ts",
}  # fmt: skip
_BUCKET_LENGTHS = {
    "rollup_5m": "5 MINUTE",
    "rollup_1h": "1 HOUR",
    "signal": "5 MINUTE",
    "idle_row": "5 MINUTE * buckets",
    "idle_hour": "1 HOUR",
    "ledger": "1 HOUR",
    "ledger_1h": "1 HOUR",
    "ledger_1d": "1 DAY",
}
_HEAD = re.compile(r"(?:\s*--[^\n]*\n)*\s*", re.MULTILINE)
_WITH = re.compile(r"WITH\s", re.IGNORECASE)
_AT = "TIMESTAMP '{at}'"


class AsOf:
    """Views in which every table holds only what was known just before a given time."""

    def __init__(
        self, views: Views, at: datetime, *, devices_until: datetime | None = None
    ) -> None:
        """`devices_until`: end of the device samples; None = `at`."""
        self._views = views
        self._shadows = _build_shadows(
            _format_timestamp(at), _format_timestamp(devices_until or at)
        )

    def query(self, sql: str, parameters: Mapping[str, Any] | None = None) -> pa.Table:
        """Run one read-only statement over the rows known at that time."""
        head = _HEAD.match(sql)
        body = sql[head.end() :] if head else sql
        words = set(re.findall(r"[a-z_0-9]+", body.lower()))
        used = [text for view, text in self._shadows.items() if view in words]
        if not used:
            return self._views.query(sql, parameters)
        shadows = ",\n".join(used)
        if _WITH.match(body):
            return self._views.query(f"WITH {shadows},\n{body[5:]}", parameters)
        return self._views.query(f"WITH {shadows}\n{body}", parameters)


def _format_timestamp(timestamp: datetime) -> str:
    text = timestamp.astimezone(UTC).replace(tzinfo=None).isoformat(sep=" ")
    return _AT.format(at=text)


def _build_shadows(at: str, devices_until: str) -> dict[str, str]:
    """Return a common table expression per table, with the table's own name."""
    shadows = {
        view: f"{view} AS (SELECT * FROM {view} WHERE {column} < {at})"
        for view, column in _TIME_COLUMNS.items()
    }
    shadows |= {
        view: f"{view} AS (SELECT * FROM {view} WHERE bucket + INTERVAL {length} <= {at})"
        for view, length in _BUCKET_LENGTHS.items()
    }
    shadows["allocation"] = (
        f'allocation AS (SELECT * REPLACE (least("end", {at}) AS "end") FROM allocation '
        f"WHERE start < {at})"
    )
    shadows["device"] = (
        f"device AS (SELECT * REPLACE (least(last_seen, {devices_until}) AS last_seen) FROM device "
        f"WHERE first_seen < {at})"
    )
    shadows["pod"] = f"pod AS ({_build_pod(at)})"
    for table in ("era", "attribute_era"):
        shadows[table] = f"{table} AS ({_ERA.format(table=table, at=at)})"
    shadows["node"] = f"node AS ({_build_node(at)})"
    return shadows


_POD = """SELECT pod.* REPLACE (
    {values},
    CASE
        WHEN finished_at < {at} THEN phase
        WHEN coalesce(scheduled_at, started_at) >= {at} THEN 'Pending'
        WHEN phase IN ('Succeeded', 'Failed') THEN 'Running'
        ELSE phase
    END AS phase,
    CASE WHEN finished_at < {at} THEN finished_at END AS finished_at,
    CASE WHEN deleted_at < {at} THEN deleted_at END AS deleted_at,
    CASE WHEN scheduled_at < {at} THEN scheduled_at END AS scheduled_at,
    CASE WHEN started_at < {at} THEN started_at END AS started_at,
    CASE WHEN coalesce(scheduled_at, started_at) < {at} OR scheduled_at IS NULL THEN node END
        AS node,
    least(last_seen, {at}) AS last_seen
) FROM pod LEFT JOIN (
    SELECT cluster, id, {eras} FROM attribute_era GROUP BY cluster, id
) AS was ON pod.cluster = was.cluster AND pod.uid = was.id
WHERE coalesce(created_at, scheduled_at, started_at, first_seen) < {at}"""
_VALUE = """coalesce(
    arg_max(value, valid_from) FILTER (kind = 'pod.{name}' AND valid_from < {at}),
    arg_min(value, valid_from) FILTER (kind = 'pod.{name}')
) AS was_{name}"""

_ERA = """SELECT * REPLACE (CASE WHEN valid_to < {at} THEN valid_to END AS valid_to)
FROM {table} WHERE valid_from < {at}"""
_NODE = """SELECT node.* REPLACE (
    least(node.last_seen, {at}) AS last_seen,
    {values},
    coalesce(
        (
            SELECT arg_max(e.reason = 'NodeReady', e.ts)
            FROM event AS e
            WHERE
                e.kind = 'Node' AND e.reason IN ('NodeNotReady', 'NodeReady')
                AND e.cluster = node.cluster AND e.name = node.node AND e.ts < {at}
        ),
        true
    ) AS ready
) FROM node LEFT JOIN (
    SELECT * FROM era WHERE valid_from < {at}
    QUALIFY row_number() OVER (PARTITION BY "cluster", node ORDER BY valid_from DESC) = 1
) AS was ON node.cluster = was.cluster AND node.node = was.node
WHERE coalesce(node.first_seen, {at}) <= {at}"""


def _build_pod(at: str) -> str:
    """Return the pods as their eras have them; a column without eras is as it is stored."""
    names = ("team", "queue", "labels", "annotations")
    values = ", ".join(
        f"CASE WHEN was_{name} IS NULL THEN {name} ELSE nullif(was_{name}, '') END AS {name}"
        for name in names
    )
    eras = ", ".join(_VALUE.format(name=name, at=at) for name in names)
    return _POD.format(values=values, eras=eras, at=at)


def _build_node(at: str) -> str:
    """Return the nodes as their eras have them; one without eras is as it is stored."""
    values = ", ".join(
        f"""CASE WHEN was.node IS NULL THEN node."{name}" ELSE {_read(name)} END AS "{name}\""""
        for name in VALUES
    )
    return _NODE.format(at=at, values=values)


def _read(name: str) -> str:
    column = f'was."{name}"'
    is_text = next(c for c in list_columns("era") if c.name == name).type == "string"
    return f"nullif({column}, '')" if is_text else column
