"""The rows that several analyzers read: one record per query or frame."""

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any, TypeVar

import polars as pl

from analyzers.queries import LAST_SCRAPES, compose_steps, load_sql
from analyzers.workload_rows import WorkloadRow
from fallow.models import State
from fallow.node_requirements import NodeRequirements, decode_document, read_requirements
from fallow.protocols import Views
from fallow.rows import Row, decode_rows
from fallow.stored_annotations import AFFINITY, SELECTOR, TOLERATIONS
from fallow.window import Window
from warehouse.steps import POD_OWNERS

R = TypeVar("R", bound=Row)
PodKey = tuple[str, str, str]
"""Cluster, namespace and name of a pod."""


class WorkloadBill(WorkloadRow, frozen=True):
    """GPU-hours of a workload in one state, and their cost (`work_bill.sql`)."""

    state: State
    gpu_hours: float
    usd: Decimal | None
    priced: bool | None


class PodUse(Row, frozen=True):
    """Host metrics of a pod: cores, bytes, bytes per second, and a ratio (`pod_use.sql`)."""

    cluster: str
    namespace: str
    pod: str
    samples: int
    cpu_cores: float | None
    cpu_p95: float | None
    cpu_p99: float | None
    cpu_peak: float | None
    throttled: float | None
    memory_p95: float | None
    memory_p99: float | None
    memory_peak: int | None
    net_bps: float | None


class PendingRequest(Row, frozen=True):
    """A request of pods without a node at one time, and their number (`pending.sql`)."""

    cluster: str
    nth: int
    gpus: int
    gpu_milli: int
    cpu_milli: int
    memory_bytes: int
    profile: str | None
    models: str | None
    selector: str | None
    affinity: str | None
    tolerations: str | None
    pods: int

    @property
    def requirements(self) -> NodeRequirements:
        """What it requires of its node, apart from capacity."""
        stored = {SELECTOR: self.selector, AFFINITY: self.affinity, TOLERATIONS: self.tolerations}
        return read_requirements(
            {key: decode_document(text) for key, text in stored.items() if text}, self.models
        )


class WriteBursts(WorkloadRow, frozen=True):
    """The bursts of writing of a workload's pod, in seconds (a frame of `bursts.sql`)."""

    bursts: int
    gap_s: float
    long_gap_s: float
    write_s: float
    last_s: float


def read_bill(views: Views, window: Window) -> list[WorkloadBill]:
    """Return the cost of each workload's hours in the window, by state."""
    parameters = {"since": window.start, "until": window.end}
    return decode_rows(views.query(load_sql("work_bill"), parameters), WorkloadBill)


def read_pod_use(
    views: Views, since: datetime, until: datetime, pods: Iterable[PodKey]
) -> list[PodUse]:
    """Return the host metrics of some pods."""
    names = [dict(zip(("cluster", "namespace", "pod"), pod, strict=True)) for pod in pods]
    parameters = {"since": since, "until": until, "pods": json.dumps(names)}
    return decode_rows(views.query(load_sql("pod_use"), parameters), PodUse)


def read_lifetimes(views: Views, bounds: Mapping[str, datetime]) -> pl.DataFrame:
    """Return the pods that requested GPUs and lived in a window, as columns."""
    steps = compose_steps(LAST_SCRAPES, POD_OWNERS, "lives")
    return pl.DataFrame(views.query(steps, bounds))


def read_bursts(views: Views, bounds: Mapping[str, datetime], burst_bps: float) -> pl.DataFrame:
    """Return the times at which pods wrote much, as columns."""
    return pl.DataFrame(views.query(load_sql("bursts"), {**bounds, "burst_bps": burst_bps}))


def read_pending_requests(views: Views, times: Mapping[str, Any]) -> list[PendingRequest]:
    """Return the requests of pods without a node at some times, the parameters of the query."""
    return decode_rows(views.query(compose_steps(LAST_SCRAPES, "pending"), times), PendingRequest)


def decode_frame(frame: pl.DataFrame, record: type[R]) -> list[R]:
    """Return the rows of a frame that has a column for each field of a record, and maybe others."""
    return decode_rows(frame.select(record.__struct_encode_fields__).to_arrow(), record)
