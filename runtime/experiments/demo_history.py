"""Write the weeks before the demo's own: hours of the ledger without samples, as of aged-out days.

    node, device   seen weeks ago ─► eras
    ledger         `older_hours.sql`: hours like those of the week, less work, fewer nodes
    audits         of these hours, as after any accounting

A simulation of five weeks takes minutes. What these hours say is made up as all of the demo is, and
it is not analysed: no finding, incident or action is of them.
"""

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from fallow.resources import read_table, read_text
from fallow.tables import Batch, get_schema
from fallow.window import Window
from runtime.operations.accounting import pipeline
from warehouse import dirty
from warehouse.stages.audit_stage import audit_stage

if TYPE_CHECKING:
    from warehouse.audits import AuditFailure
    from warehouse.lake import Warehouse

BEGUN_PCT = [96, 90, 84, 76]
"""Of a hundred workloads so many ran one, two, three and four weeks before."""
DRAW = 38
"""Decides which: of the default fleet the share of GPU-hours shrinks as that of the workloads."""
WEEKS = len(BEGUN_PCT)
OLDER = "bucket < $first_hours[list_position($clusters, cluster)]"
"""Hours before the first one of their cluster."""
HERE = "runtime.experiments"


def write_older_weeks(warehouse: "Warehouse", window: Window) -> "list[AuditFailure]":
    """Write `WEEKS` of hours before a window whose ledger is written; return failed audits."""
    oldest = window.start - timedelta(weeks=WEEKS)
    nodes = read_table(HERE, "joined_nodes.csv")
    times = [window.start - timedelta(days=int(row["days"])) for row in nodes]
    joined = {
        "oldest": oldest.replace(tzinfo=None),
        "joined_nodes": [row["node"] for row in nodes],
        "joined_at": [at.replace(tzinfo=None) for at in times],
    }
    pipeline.ingest(warehouse, [_read_seen(warehouse, name, joined) for name in ("node", "device")])
    firsts = warehouse.query("SELECT cluster, min(bucket) AS first_hour FROM ledger GROUP BY ALL")
    spans = {
        "clusters": firsts["cluster"].to_pylist(),
        "first_hours": firsts["first_hour"].to_pylist(),
        "begun_pct": BEGUN_PCT,
        "draw": DRAW,
    }
    hours = read_text(HERE, "older_hours.sql")
    warehouse.derive("ledger", hours, OLDER, {**window.bounds(), **joined, **spans})
    older = Window(oldest, window.start)
    # The nodes of these hours are newly known, and what was made of them is made already.
    dirty.take_marks(warehouse)
    dirty.clear_marks(warehouse, older)
    return audit_stage(warehouse, older)


def _read_seen(warehouse: "Warehouse", table: str, parameters: dict[str, Any]) -> Batch:
    """Return the rows of nodes or devices as they were seen weeks ago."""
    rows = warehouse.query(read_text(HERE, f"older_{table}s.sql"), parameters)
    return Batch(table, rows.select(get_schema(table).names).cast(get_schema(table)))
