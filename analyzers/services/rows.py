"""Read the latencies of services, the share within each objective, and the use of replicas."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import msgspec

from analyzers.queries import DEVICE_OWNERS, OWNERS, compose_steps, load_sql
from analyzers.workload_rows import Owner, WorkloadRow
from fallow.protocols import Views
from fallow.rows import Row, decode_rows
from fallow.window import Window

ATTAINED = compose_steps(OWNERS, "services/attained")
REPLICAS = compose_steps(DEVICE_OWNERS, "services/replicas")


class RequestedObjective(msgspec.Struct, frozen=True):
    """An objective of a workload, as `attained.sql` reads it."""

    owner: Owner
    metric: str
    within_s: float
    target: float


class ServiceLatencies(WorkloadRow, frozen=True):
    """The metrics of a workload's latencies, and its owner's objectives (`latencies.sql`)."""

    team: str | None
    slo: str | None
    metrics: list[str]


class AttainedObjective(WorkloadRow, frozen=True):
    """Observations within an objective, from one source (`attained.sql`)."""

    metric: str
    source: str
    within_s: float
    target: float
    requests: float
    least: float
    about: float
    most: float
    hours: int
    last_hour: datetime
    """Naive UTC; the last hour with an observation."""
    hours_missed: int
    worst_hour: float
    mean_only: bool


class ReplicaUse(WorkloadRow, frozen=True):
    """The replicas of a workload with devices, and their activity (`replicas.sql`)."""

    hours: int
    replicas: float
    devices: float
    most_active: float
    act: float
    sm: float | None


class SilentServers(Row, frozen=True):
    """How many serving pods of a cluster report no latency (`pods_without_latency.sql`)."""

    cluster: str
    pods: int


def read_latencies(views: Views, window: Window) -> list[ServiceLatencies]:
    """Return the workloads with known latencies."""
    bounds = {"since": window.start, "until": window.end}
    steps = compose_steps(OWNERS, "services/latencies")
    return decode_rows(views.query(steps, bounds), ServiceLatencies)


def read_attained(
    views: Views, window: Window, objectives: Sequence[RequestedObjective]
) -> list[AttainedObjective]:
    """Return how many observations were within each objective."""
    bounds = {"since": window.start, "until": window.end}
    parameters = bounds | list_objectives(objectives)
    return decode_rows(views.query(ATTAINED, parameters), AttainedObjective)


def read_replicas(views: Views, window: Window, owners: Iterable[Owner]) -> list[ReplicaUse]:
    """Return the replicas of some workloads and their activity."""
    parameters = window.bounds() | list_owners(owners)
    return decode_rows(views.query(REPLICAS, parameters), ReplicaUse)


def read_silent_servers(views: Views, window: Window, recent: datetime) -> list[SilentServers]:
    """Return the clusters with pods that serve, since `recent`, and report no latency."""
    parameters = {**window.bounds(), "recent": recent}
    sql = load_sql("services/pods_without_latency")
    return decode_rows(views.query(sql, parameters), SilentServers)


def list_objectives(objectives: Sequence[RequestedObjective]) -> dict[str, Any]:
    """Return objectives as the lists that `attained.sql` unnests."""
    return {
        **list_owners(objective.owner for objective in objectives),
        "metrics": [objective.metric for objective in objectives],
        "within": [objective.within_s for objective in objectives],
        "targets": [objective.target for objective in objectives],
    }


def list_owners(owners: Iterable[Owner]) -> dict[str, Any]:
    """Return workloads as the lists that `attained.sql` and `replicas.sql` unnest."""
    clusters, namespaces, kinds, workloads = zip(*owners, strict=True)
    return {
        "clusters": list(clusters),
        "namespaces": list(namespaces),
        "kinds": list(kinds),
        "workloads": list(workloads),
    }
