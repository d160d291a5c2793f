"""The rows that the spot analyzer reads: one record per query, frame and table."""

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal

from analyzers.queries import ERAS, compose_steps, load_sql
from analyzers.workload_rows import WorkloadRow
from fallow.models import State
from fallow.protocols import Views
from fallow.rows import Row, decode_rows
from fallow.spot_advisor import NodeType
from fallow.window import Window


class WorkedHours(WorkloadRow, frozen=True):
    """Hours that a workload used on nodes of one type and way of payment (`worked_hours.sql`)."""

    pool: str | None
    model: str | None
    state: State
    provider: str | None
    region: str | None
    instance_type: str | None
    capacity_type: str
    gpu_hours: float
    usd: Decimal | None
    priced: bool | None
    team: str | None

    @property
    def cost(self) -> Decimal:
        """The cost of the hours that have a price."""
        return self.usd or Decimal()

    @property
    def node_type(self) -> NodeType:
        """The type of its nodes; empty = unknown."""
        return self.provider or "", self.region or "", self.instance_type or ""


class NodePriceSpan(Row, frozen=True):
    """The prices of one node type and term in the window (`node_prices.sql`)."""

    provider: str
    region: str
    zone: str
    instance_type: str
    term: str
    gpu_count: int | None
    usd_h: float
    last_usd_h: float
    low_usd_h: float
    high_usd_h: float
    prices: int
    as_of: datetime | None
    reference: str | None


class InterruptionCount(Row, frozen=True):
    """How often spot nodes of one type were reclaimed (`interruptions.sql`)."""

    provider: str | None
    region: str | None
    instance_type: str
    nodes: int
    node_hours: float
    interruptions: int


class WorkloadLifetimes(WorkloadRow, frozen=True):
    """The lifetimes of the pods of one workload (a frame of `lives.sql`)."""

    pods: int
    on_nodes: int
    run_hours: float
    ended: bool | None
    start: datetime
    annotations: list[str]
    labels: str | None


def read_worked_hours(views: Views, window: Window) -> list[WorkedHours]:
    """Return the hours of workloads that could be bought at other terms."""
    sql = compose_steps(*ERAS, "spot/worked_hours")
    return decode_rows(views.query(sql, window.bounds()), WorkedHours)


def read_node_prices(views: Views, window: Window) -> list[NodePriceSpan]:
    """Return the prices of whole nodes in force in the window."""
    return decode_rows(views.query(load_sql("spot/node_prices"), window.bounds()), NodePriceSpan)


def read_interruptions(
    views: Views, window: Window, reasons: Sequence[str]
) -> list[InterruptionCount]:
    """Return the interruptions of spot nodes by events with these reasons."""
    parameters = {**window.bounds(), "reasons": list(reasons)}
    sql = compose_steps(*ERAS, "spot/interruptions")
    return decode_rows(views.query(sql, parameters), InterruptionCount)
