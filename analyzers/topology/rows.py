"""The rows that the topology analyzer reads: one record per query and table."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Any

from analyzers.queries import load_records, load_sql
from analyzers.workload_rows import WorkloadRow
from fallow.protocols import Views
from fallow.rows import Row, decode_rows
from fallow.window import Window


class GangPlacement(WorkloadRow, frozen=True):
    """The pods of a job on one node and model when its last one had started (`gangs.sql`)."""

    node: str
    model: str | None
    started_at: datetime
    all_hours: float
    """GPU-hours of the whole job in the window."""
    team: str | None
    until: datetime
    gpus: int
    pods: list[str]
    devices: list[str]
    hours: float


class NodeLocation(Row, frozen=True):
    """The location of a node, and its GPUs of one model (`node_locations.sql`)."""

    cluster: str
    node: str
    model: str | None
    pool: str | None
    zone: str | None
    labels: str | None
    gpus: int


class AllocatedGpus(Row, frozen=True):
    """GPUs of a node that were allocated when a job started (`allocated_gpus.sql`)."""

    gang: int
    node: str
    gpus: int


class LinkTraffic(Row, frozen=True):
    """Bytes per second over the links of a job's devices while they worked (`links.sql`)."""

    gang: int
    hours: int
    pcie_bps: float | None
    nvlink_bps: float | None


class LevelLabel(Row, frozen=True):
    """A node label that names a level, and a node's bandwidth across it (`levels.csv`)."""

    level: str
    rank: int
    gbs: float
    source: str
    label: str = ""
    """Empty = the inventory names the level itself."""


def read_placements(views: Views, window: Window, kinds: Sequence[str]) -> list[GangPlacement]:
    """Return the placements of jobs of some kinds that are on several nodes."""
    parameters = {"since": window.start, "until": window.end, "kinds": list(kinds)}
    return decode_rows(views.query(load_sql("topology/gangs"), parameters), GangPlacement)


def read_locations(views: Views) -> list[NodeLocation]:
    """Return the location of every node with GPUs."""
    return decode_rows(views.query(load_sql("topology/node_locations")), NodeLocation)


def read_allocated(views: Views, starts: Sequence[Mapping[str, Any]]) -> list[AllocatedGpus]:
    """Return the allocated GPUs at the starts of jobs: gang, cluster, model, started_at (us)."""
    parameters = {"gangs": json.dumps(starts)}
    return decode_rows(views.query(load_sql("topology/allocated_gpus"), parameters), AllocatedGpus)


def read_links(
    views: Views, window: Window, devices: Sequence[Mapping[str, Any]]
) -> list[LinkTraffic]:
    """Return the traffic of jobs' devices: gang, cluster, device, since and until (us)."""
    parameters = {"since": window.start, "until": window.end, "devices": json.dumps(devices)}
    return decode_rows(views.query(load_sql("topology/links"), parameters), LinkTraffic)


@cache
def read_level_labels() -> tuple[LevelLabel, ...]:
    """Return the rows of `levels.csv`."""
    return tuple(load_records("topology/levels", LevelLabel))
