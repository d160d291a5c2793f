"""Read the rows of incidents: XIDs, memory errors, heat, lost devices, events, failed processes."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from analyzers.queries import LAST_SCRAPES, compose_steps, load_sql
from analyzers.workload_rows import WorkloadRow
from fallow.protocols import Views
from fallow.rows import Row, decode_rows
from warehouse.steps import POD_OWNERS

FOLDER = "reliability/incidents"
LEAST_HOT_S = 600.0
"""Throttling for less than this is no incident."""


class XidChange(Row, frozen=True):
    """A device that shows another XID than before (`xid_changes.sql`)."""

    cluster: str
    device: str
    at: datetime
    node: str
    namespace: str
    pod: str
    code: int
    older: bool
    last_namespace: str = ""
    last_pod: str = ""
    """The pod that held the device in this sample or in the ten minutes before."""


class CounterGrowth(Row, frozen=True):
    """A device whose counters of errors of memory or links rose (`counter_growth.sql`)."""

    cluster: str
    device: str
    at: datetime
    node: str
    namespace: str
    pod: str
    ecc_growth: bool
    remap_growth: bool
    remap_failed: bool
    remap_pending: bool
    nvlink_crc_growth: bool
    nvlink_replay_growth: bool
    pcie_replay_growth: bool


class HotStretch(WorkloadRow, frozen=True):
    """A device that throttled while it worked, and its peers' clock (`hot_stretches.sql`)."""

    device: str
    pod: str
    node: str
    start: datetime
    end: datetime
    seconds: float
    clock_mhz: float
    peers_mhz: float | None
    peers: int
    hot: bool
    """Throttled for heat, and not only by the power brake."""
    braked: bool


class GoneDevice(Row, frozen=True):
    """A device whose series ended while its node's others went on (`gone_devices.sql`)."""

    cluster: str
    device: str
    node: str
    at: datetime
    namespace: str
    pod: str
    """The pod that had it; empty = none is known."""


class IncidentEvent(Row, frozen=True):
    """An event that is evidence (`incident_events.sql`)."""

    cluster: str
    uid: str
    at: datetime
    kind: str
    namespace: str
    name: str
    reason: str
    message: str


class LastExit(msgspec.Struct, frozen=True):
    """The last exit of a container with an error (`pod.containers`)."""

    code: int
    reason: str = ""
    message: str = ""
    started_at: datetime | None = None
    finished_at: datetime | None = None


class FailedContainer(msgspec.Struct, frozen=True):
    """What the inventory knows of a container's failures (`pod.containers`)."""

    name: str
    oom_killed: bool = False
    restarts: int = 0
    last_exit: LastExit | None = None


class EndedProcess(WorkloadRow, frozen=True):
    """A pod whose containers failed, restarted or wait (`ended_processes.sql`)."""

    pod: str
    node: str
    phase: str
    started_at: datetime | None
    finished_at: datetime | None
    last_seen: datetime | None
    containers: str

    def list_containers(self) -> list[FailedContainer]:
        """Return its containers."""
        return msgspec.json.decode(self.containers, type=list[FailedContainer])


class ProgressMove(Row, frozen=True):
    """A time at which a pod's progress rose (`progress_moves.sql`)."""

    cluster: str
    namespace: str
    pod: str
    at: datetime


class StandingRequests(Row, frozen=True):
    """A stretch in which requests waited and no token came (`standing_requests.sql`)."""

    cluster: str
    namespace: str
    pod: str
    at: datetime
    ended: datetime
    waiting: float


class NodeZone(Row, frozen=True):
    """The zone of a node (`node_zones.sql`)."""

    cluster: str
    node: str
    zone: str


Bounds = Mapping[str, Any]


def read_xid_changes(views: Views, bounds: Bounds) -> list[XidChange]:
    """Return when which device showed another XID."""
    return decode_rows(views.query(load_sql(f"{FOLDER}/xid_changes"), bounds), XidChange)


def read_counter_growth(views: Views, bounds: Bounds) -> list[CounterGrowth]:
    """Return the devices whose counters of errors rose."""
    return decode_rows(views.query(load_sql(f"{FOLDER}/counter_growth"), bounds), CounterGrowth)


def read_hot_stretches(
    views: Views, bounds: Bounds, throttles: int, *, heat: int, power: int
) -> list[HotStretch]:
    """Return the devices that throttled.

    `throttles` are the bits of `throttle_mask` that count; `heat` and `power` those of one reason.
    """
    parameters = {
        **bounds, "throttles": throttles, "heat": heat, "power": power, "least_s": LEAST_HOT_S
    }  # fmt: skip
    return decode_rows(views.query(load_sql(f"{FOLDER}/hot_stretches"), parameters), HotStretch)


def read_gone_devices(views: Views, bounds: Bounds) -> list[GoneDevice]:
    """Return the devices whose series ended alone."""
    return decode_rows(views.query(load_sql(f"{FOLDER}/gone_devices"), bounds), GoneDevice)


def read_incident_events(
    views: Views, bounds: Bounds, reasons: Sequence[str], kinds: Sequence[str]
) -> list[IncidentEvent]:
    """Return the events of objects of these kinds with these reasons."""
    parameters = {**bounds, "reasons": list(reasons), "kinds": list(kinds)}
    table = views.query(load_sql(f"{FOLDER}/incident_events"), parameters)
    return decode_rows(table, IncidentEvent)


def read_ended_processes(views: Views, bounds: Bounds) -> list[EndedProcess]:
    """Return the pods whose containers failed."""
    steps = compose_steps(LAST_SCRAPES, POD_OWNERS, f"{FOLDER}/ended_processes")
    return decode_rows(views.query(steps, bounds), EndedProcess)


def read_progress_moves(views: Views, bounds: Bounds, pods: Sequence[int]) -> list[ProgressMove]:
    """Return when the progress of some pods rose."""
    parameters = {**bounds, "pods": list(pods)}
    table = views.query(load_sql(f"{FOLDER}/progress_moves"), parameters)
    return decode_rows(table, ProgressMove)


def read_standing_requests(
    views: Views, bounds: Bounds, least: timedelta
) -> list[StandingRequests]:
    """Return when requests waited for so long at servers from which no token came."""
    parameters = {**bounds, "least_s": least.total_seconds()}
    table = views.query(load_sql(f"{FOLDER}/standing_requests"), parameters)
    return decode_rows(table, StandingRequests)


def read_node_zones(views: Views) -> dict[tuple[str, str], str]:
    """Return the zone of each node with GPUs."""
    rows = decode_rows(views.query(load_sql(f"{FOLDER}/node_zones")), NodeZone)
    return {(row.cluster, row.node): row.zone for row in rows}
