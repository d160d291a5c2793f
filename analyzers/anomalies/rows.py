"""The rows that the anomalies analyzer reads: one record per query."""

from collections.abc import Sequence
from decimal import Decimal

from analyzers.anomalies.changes import SpendChange
from analyzers.queries import load_sql
from fallow.protocols import Views
from fallow.rows import Row, decode_rows


class WorkloadSpend(Row, frozen=True):
    """GPU-hours and dollars of a workload during a change (`workloads.sql`)."""

    span: int
    """The number of the change, from 0."""
    namespace: str
    workload_kind: str
    workload: str
    gpu_hours: float
    usd: Decimal | None
    idle: float
    idle_usd: Decimal | None
    lost: float
    lost_usd: Decimal | None

    @property
    def wasted(self) -> float:
        """GPU-hours that were idle or lost."""
        return self.idle + self.lost


def read_spend(views: Views, changes: Sequence[SpendChange]) -> list[WorkloadSpend]:
    """Return what workloads spent and wasted during changes, for each the largest first."""
    parameters = {
        "spans": list(range(len(changes))),
        "clusters": [c.key.cluster for c in changes],
        "teams": [c.key.team or None for c in changes],
        "namespaces": [c.key.namespace or None for c in changes],
        "starts": [c.start.replace(tzinfo=None) for c in changes],
        "ends": [c.end.replace(tzinfo=None) for c in changes],
        "since": min(c.start for c in changes).replace(tzinfo=None),
        "until": max(c.end for c in changes).replace(tzinfo=None),
    }
    return decode_rows(views.query(load_sql("anomalies/workloads"), parameters), WorkloadSpend)
