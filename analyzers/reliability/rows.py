"""Read the rows of failures: pods, events, XIDs, memory errors, nodes, hours and lost work."""

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any, Literal

import polars as pl

from analyzers.queries import load_sql
from analyzers.rows import decode_frame
from analyzers.workload_rows import Owner, WorkloadRow
from fallow.models import State
from fallow.protocols import Views
from fallow.rows import Row, decode_rows


class PodLifetime(WorkloadRow, frozen=True):
    """The life of a pod that requested GPUs, as far as it lies in the window (`lives.sql`)."""

    pod: str
    who: int
    node: str
    phase: str
    gpus: float
    created_at: datetime | None
    deleted_at: datetime | None
    start: datetime
    ended: datetime | None


class FailureEvent(Row, frozen=True):
    """An event of a node, or of a pod that was lost with a node (`failure_events.sql`)."""

    cluster: str
    ts: datetime
    kind: Literal["Node", "Pod"]
    namespace: str | None
    name: str
    reason: str


class DeviceXid(Row, frozen=True):
    """An XID first shown by a device in an hour; `older` = it was present before the window."""

    cluster: str
    device: str
    node: str
    at: datetime
    code: int
    namespace: str
    pod: str
    older: bool


class MemorySign(Row, frozen=True):
    """A counter of a device's memory errors in the last raw samples (`memory_signs.sql`)."""

    cluster: str
    device: str
    node: str | None
    sign: str
    most: int
    growth: int


class NodeLifetime(Row, frozen=True):
    """A node with GPUs, and the hours for which it existed in the window (`node_lifetimes.sql`)."""

    cluster: str
    node: str
    pool: str
    gpu_count: int
    hours: float


class StateBill(WorkloadRow, frozen=True):
    """GPU-hours of a workload in a state, or of a node that was unavailable (`state_bill.sql`)."""

    node: str | None
    pool: str | None
    state: State
    gpu_hours: float
    usd: Decimal | None


class FailureWorkLost(WorkloadRow, frozen=True):
    """The work of a workload that one failure lost, as the ledger counts it (`work_lost.sql`)."""

    failed_at: datetime
    gpu_hours: float
    recovering: float | None
    """GPU-hours held without work after it; None = no work again was seen."""
    gpus: float
    """Those of all ranks that lost work."""
    measured: bool


class MissingDevices(Row, frozen=True):
    """A node with fewer GPUs in telemetry than it has (`missing_devices.sql`)."""

    cluster: str
    node: str
    expected: int
    allocatable: int | None
    visible: int
    last_of_missing: datetime | None
    gpu_hours: float
    unavailable_hours: float
    usd: Decimal | None


class SlowClock(WorkloadRow, frozen=True):
    """A device below its peers' clock, by workload (a frame of `device_clocks.sql`)."""

    device: str
    model: str | None
    node: str | None
    clock: float
    peers_mhz: float
    hours: float
    hot_hours: float
    mask: int | None
    temp_c: float | None
    gang: int


class RankActivity(Row, frozen=True):
    """Idle and active GPU-seconds of a pod in five minutes (`rank_activity.sql`)."""

    cluster: str
    namespace: str
    pod: str
    bucket: datetime
    idle_s: float
    active_s: float


class LoadTime(WorkloadRow, frozen=True):
    """Seconds from a pod's start to its first work, the mean of a workload (`load_times.sql`)."""

    load_s: float


def list_lifetimes(pods: pl.DataFrame) -> list[PodLifetime]:
    """Return the rows of `read_lifetimes`."""
    return decode_frame(pods, PodLifetime)


def read_events(views: Views, bounds: Mapping[str, Any], reasons: list[str]) -> list[FailureEvent]:
    """Return the events with these reasons, from an hour before the window on."""
    parameters = {**bounds, "reasons": reasons}
    return decode_rows(
        views.query(load_sql("reliability/failure_events"), parameters), FailureEvent
    )


def read_xids(views: Views, bounds: Mapping[str, Any]) -> list[DeviceXid]:
    """Return the XIDs of a window, by the hour."""
    return decode_rows(views.query(load_sql("reliability/device_xids"), dict(bounds)), DeviceXid)


def read_memory_signs(views: Views, recent: datetime, until: datetime) -> list[MemorySign]:
    """Return the memory errors that devices show in the raw samples since `recent`."""
    parameters = {"recent": recent, "until": until}
    return decode_rows(views.query(load_sql("reliability/memory_signs"), parameters), MemorySign)


def read_nodes(views: Views, bounds: Mapping[str, Any]) -> list[NodeLifetime]:
    """Return the nodes with GPUs that existed in a window."""
    return decode_rows(views.query(load_sql("reliability/node_lifetimes"), bounds), NodeLifetime)


def read_bills(views: Views, bounds: Mapping[str, Any]) -> list[StateBill]:
    """Return the hours that failures can cost: of workloads by state, and of absent nodes."""
    return decode_rows(views.query(load_sql("reliability/state_bill"), bounds), StateBill)


def read_work_lost(views: Views, bounds: Mapping[str, Any]) -> list[FailureWorkLost]:
    """Return the work that each failure of a window lost."""
    return decode_rows(views.query(load_sql("reliability/work_lost"), bounds), FailureWorkLost)


def read_rank_activity(
    views: Views, bounds: Mapping[str, Any], pods: list[int]
) -> list[RankActivity]:
    """Return the activity of some pods (`who` of their lifetimes), in order of time."""
    sql = load_sql("reliability/rank_activity")
    return decode_rows(views.query(sql, {**bounds, "pods": pods}), RankActivity)


def read_load_times(views: Views, bounds: Mapping[str, Any]) -> dict[Owner, float]:
    """Return how long a pod of each workload takes from its start to its first work, seconds."""
    rows = decode_rows(views.query(load_sql("reliability/load_times"), bounds), LoadTime)
    return {row.owner: row.load_s for row in rows}


def read_missing_devices(views: Views, bounds: Mapping[str, Any]) -> list[MissingDevices]:
    """Return the nodes with fewer GPUs in telemetry than they have."""
    return decode_rows(views.query(load_sql("reliability/missing_devices"), bounds), MissingDevices)


def read_clocks(views: Views, bounds: Mapping[str, Any], throttles: int) -> pl.DataFrame:
    """Return the speed of each device while its pod kept it busy, as columns.

    `throttles` are the bits of `throttle_mask` that indicate hardware problems.
    """
    parameters = {**bounds, "throttles": throttles}
    return pl.DataFrame(views.query(load_sql("reliability/device_clocks"), parameters))
