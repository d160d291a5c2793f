"""Check whether the shown data are reliable: failing collectors, failing audits."""

from datetime import datetime, timedelta

import msgspec
import pyarrow as pa

from dashboards.figures.query import Filters, run_query
from fallow.protocols import Views
from fallow.window import Window
from warehouse.audit_results import read_failures
from warehouse.audits import format_banner
from warehouse.lake import Warehouse
from warehouse.shards import read_shards as read_shard_states

RECENT = timedelta(days=1)
"""A collector without a scrape for longer than this has stopped."""


class CollectorHealth(msgspec.Struct, frozen=True):
    """One collector's last hour of scrapes."""

    cluster: str
    collector: str
    scrapes: int
    succeeded: int
    last_success: datetime | None
    targets_down: int
    error: str | None

    @property
    def down(self) -> bool:
        """Whether every scrape failed."""
        return self.succeeded == 0


def read_audits(views: Views, window: Window) -> str | None:
    """Return the banner of the audits that fail over a window; None = the ledger adds up."""
    if not isinstance(views, Warehouse):  # rows of a test have no ledger
        return None
    return format_banner(read_failures(views, window))


SHARD_COLUMNS = pa.schema(
    {
        "cluster": pa.string(),
        "shard": pa.string(),
        "state": pa.string(),
        "targets": pa.int64(),
        "uncollected": pa.int64(),
        "last_seen": pa.timestamp("us", "UTC"),
        "collector_process": pa.string(),
    }
)


def read_shards(views: Views, cluster: str | None) -> pa.Table:
    """Return the shards of the collection, lost ones first; none in an embedded warehouse."""
    states = read_shard_states(views, cluster) if isinstance(views, Warehouse) else ()
    rows = [
        {
            "cluster": state.cluster,
            "shard": str(state.shard),
            "state": "collected" if state.running else "lost",
            "targets": state.targets,
            "uncollected": state.uncollected,
            "last_seen": state.seen,
            "collector_process": state.holder,
        }
        for state in sorted(states, key=lambda state: (state.running, state.cluster, state.shard))
    ]
    return pa.Table.from_pylist(rows, SHARD_COLUMNS)


def read_collector_health(
    views: Views, until: datetime, cluster: str | None
) -> tuple[CollectorHealth, ...]:
    """Return the results of each collector's newest scrapes, of the day before a time."""
    recent = (until - RECENT).replace(tzinfo=None)
    steps, filters = ("data_health/collectors",), Filters(cluster=cluster)
    rows = run_query(views, steps, None, filters, recent=recent).to_pylist()
    return tuple(CollectorHealth(**row) for row in rows)
