"""Query the warehouse as if it had some more rows: they are in memory and never stored."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from fallow.tables import get_schema
from fallow.window import Window
from warehouse.allocation import TOUCHING, derive_allocations, widen_to_bucket
from warehouse.statements import fetch_row

if TYPE_CHECKING:
    import duckdb

    from warehouse.lake import Warehouse

_ALL = "false"


class Overlay:
    """Views in which given rows replace those that a condition selects."""

    def __init__(self, warehouse: "Warehouse") -> None:
        self._warehouse = warehouse
        self._put: dict[str, tuple[str, Mapping[str, Any], pa.Table]] = {}

    def put(
        self, noun: str, rows: pa.Table, without: str = _ALL, /, **parameters: Any
    ) -> "Overlay":
        """Replace the table's rows that a condition (SQL with $parameters) selects by `rows`."""
        self._put[noun] = (without, parameters, rows.cast(get_schema(noun)))
        return self

    def query(self, sql: str, parameters: Mapping[str, Any] | None = None) -> pa.Table:
        """Run one read-only statement; see `Warehouse.query`."""
        return self._warehouse.query_prepared(sql, parameters or {}, prepare=self._replace_views)

    def _replace_views(self, cursor: "duckdb.DuckDBPyConnection") -> None:
        row = fetch_row(cursor, "SELECT current_schema()")
        views = row[0] if row else "main"
        for noun, (without, values, rows) in self._put.items():
            cursor.register(f"overlay_{noun}", rows)
            # A view takes no parameters. These values are our own, so they are written as
            # literals.
            cursor.execute(
                f'CREATE TEMP VIEW "{noun}" AS SELECT * FROM memory.{views}."{noun}" '
                f"WHERE NOT coalesce({_write_condition(without, values)}, false) "
                f'UNION ALL BY NAME SELECT * FROM "overlay_{noun}"'
            )


def overlay_inventory(
    warehouse: "Warehouse", nodes: pa.Table, pods: pa.Table, window: Window
) -> Overlay:
    """Return views with these nodes and pods, and with the allocations of a window that follow.

    They replace rows of the same uid, and rows that a source without uids wrote for the same name.
    """
    uids, names = pods.column("uid").to_pylist(), _list_names(pods)
    hashed = "regexp_full_match(uid, '[0-9a-f]{32}')"
    overlay = (
        Overlay(warehouse)
        .put("node", nodes, "list_contains($nodes, node)", nodes=nodes.column("node").to_pylist())
        .put(
            "pod",
            pods,
            "list_contains($uids, uid) OR "
            f"({hashed} AND list_contains($names, concat_ws('/', namespace, pod)))",
            uids=uids,
            names=names,
        )
    )
    window = widen_to_bucket(window)
    allocations = derive_allocations(overlay, window)
    return overlay.put("allocation", allocations, TOUCHING, **window.bounds())


def _list_names(pods: pa.Table) -> list[str]:
    pairs = zip(pods.column("namespace").to_pylist(), pods.column("pod").to_pylist(), strict=True)
    return [f"{namespace}/{pod}" for namespace, pod in pairs]


def _write_condition(condition: str, parameters: Mapping[str, Any]) -> str:
    """Return a condition with its parameters as SQL literals."""
    for name, value in parameters.items():
        condition = condition.replace(f"${name}", _write_literal(value))
    return condition


def _write_literal(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_write_literal, value))}]::VARCHAR[]"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return f"TIMESTAMP '{value.isoformat(sep=' ')}'"
