"""Show one stored incident: what happened, and its GPU, node and network signals around it."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa

from dashboards.figures.query import Filters, run_query
from fallow.protocols import Views
from fallow.window import Window
from warehouse.incidents import IncidentSign
from warehouse.steps import POD_OWNERS

AROUND = timedelta(hours=1)
"""Time before the first and after the last sign that is shown."""
LONGEST = timedelta(hours=24)
MOST_EVENTS = 300
FIVE_MINUTES = timedelta(minutes=5)


class IncidentDetail(msgspec.Struct, frozen=True):
    """A stored incident; dollars and GPU-hours None = not known."""

    id: str
    cluster: str
    start: datetime
    end: datetime
    cause: str
    step: str
    why: str
    workloads: tuple[str, ...]
    """namespace/kind/name"""
    nodes: tuple[str, ...]
    devices: tuple[str, ...]
    """Those that the evidence names."""
    gpus: float | None
    usd: Decimal | None
    lost_gpu_hours: float | None
    most_lost_gpu_hours: float | None
    recovery_gpu_hours: float | None
    signs: tuple[IncidentSign, ...]

    @property
    def window(self) -> Window:
        """The time around the incident; of a long one its first day."""
        end = min(self.end + AROUND, self.start - AROUND + LONGEST)
        return Window(self.start - AROUND, max(end, self.start + AROUND)).whole(FIVE_MINUTES)


def decode_incident(row: Mapping[str, Any]) -> IncidentDetail:
    """Return a row of `health.read_incidents` with its lists and evidence."""
    lists = {name: json.loads(row[name]) for name in ("workloads", "nodes", "devices")}
    columns = {name: row[name] for name in IncidentDetail.__struct_fields__ if name in row}
    start = row["start"].replace(tzinfo=UTC)
    return IncidentDetail(
        **columns
        | {name: tuple(values) for name, values in lists.items()}
        | {
            "start": start,
            "end": row["end"].replace(tzinfo=UTC) if row["end"] else start,
            "signs": msgspec.json.decode(row["evidence"], type=tuple[IncidentSign, ...]),
        }
    )


def read_signals(views: Views, incident: IncidentDetail) -> pa.Table:
    """Return the signals around an incident in steps of five minutes; null = no sample, or unknown.

    Columns: at (UTC), gpus (that have samples); of the job's GPUs, and `named_` of those that the
    evidence names: activity_pct, power_w (means), temp_c (hottest), clock_mhz; nvlink_gb_s,
    pcie_gb_s (mean of the highest values); nvlink_crc, nvlink_replay, pcie_replay, ecc_dbe (new
    errors); received_mb_s, sent_mb_s (of its pods together).
    """
    steps = (
        POD_OWNERS, "incidents/job_devices", "incidents/device_signals", "incidents/link_errors",
        "incidents/pod_network", "incidents/signals",
    )  # fmt: skip
    return _query_incident(views, steps, incident)


def read_happened(views: Views, incident: IncidentDetail) -> pa.Table:
    """Return the events of its nodes and pods around an incident: at (UTC), kind, detail."""
    steps = (POD_OWNERS, "incidents/happened")
    return _query_incident(views, steps, incident, most=MOST_EVENTS)


def _query_incident(
    views: Views, steps: tuple[str, ...], incident: IncidentDetail, **more: Any
) -> pa.Table:
    named = {name: [*getattr(incident, name)] for name in ("workloads", "nodes", "devices")}
    bounds = incident.window.bounds()
    filters = Filters(cluster=incident.cluster)
    return run_query(views, steps, None, filters, **named, **bounds, **more)
