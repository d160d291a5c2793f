"""The rows that the demand analyzer reads: one record per query and table."""

from datetime import datetime, timedelta
from functools import cache
from typing import Literal

from analyzers.queries import load_records, load_sql
from fallow.protocols import Views
from fallow.rows import Row, decode_rows
from fallow.window import Window

Profile = Literal["build", "train", "retrain", "batch", "inference", "unknown"]


class ArrivedGpus(Row, frozen=True):
    """GPUs that new pods of a cluster requested in one lead time (`arrivals.sql`)."""

    cluster: str
    bucket: datetime
    gpus: float


class GangRow(Row, frozen=True):
    """What one workload requested at once; seconds since 1970 (`gang_requests.sql`)."""

    cluster: str
    created_s: float
    placed_s: float | None
    ended_s: float | None
    seen_s: float | None
    gpus: float


class ListedCluster(Row, frozen=True):
    """A cluster in which pods requested GPUs, and when they were listed (`listed_clusters.sql`)."""

    cluster: str
    first_seen: datetime
    last_seen: datetime | None


class TermRate(Row, frozen=True):
    """The lowest price of a GPU-hour of one model and term (`term_rates.sql`)."""

    model: str
    term: str
    usd_h: float | None
    """None = no rate has the number of GPUs."""


class SharedQueue(Row, frozen=True):
    """A queue that several namespaces share (`shared_queues.sql`)."""

    cluster: str
    name: str


class SimilarRuns(Row, frozen=True):
    """Runs of workloads with similar names, in hours (`similar_runs.sql`)."""

    cluster: str
    namespace: str
    workload_kind: str | None
    stem: str
    runs: int
    gpus: float
    run_h: float
    """Median length of a run."""
    gap_h: float | None
    """Median time between the starts of two runs."""
    gap_spread: float | None
    cron: bool | None
    gpu_hours: float
    known_hours: float
    """Those of a known state."""
    busy_hours: float


class KindProfile(Row, frozen=True):
    """The profile of a kind of workload, and why (`profiles.csv`)."""

    workload_kind: str
    profile: Profile
    why: str


def read_arrivals(
    views: Views, since: datetime, until: datetime, lead: timedelta
) -> list[ArrivedGpus]:
    """Return the GPUs requested in each stretch of the lead time."""
    parameters = {"since": since, "until": until, "lead_s": lead.total_seconds()}
    return decode_rows(views.query(load_sql("demand/arrivals"), parameters), ArrivedGpus)


def read_gangs(views: Views, since: datetime, until: datetime) -> list[GangRow]:
    """Return what workloads of each cluster requested at once, the earliest first."""
    parameters = {"since": since, "until": until}
    return decode_rows(views.query(load_sql("demand/gang_requests"), parameters), GangRow)


def read_listed_clusters(views: Views) -> list[ListedCluster]:
    """Return the clusters in which pods requested GPUs, by name."""
    return decode_rows(views.query(load_sql("demand/listed_clusters")), ListedCluster)


def read_term_rates(views: Views, until: datetime) -> list[TermRate]:
    """Return the prices in force at a time, by model and term."""
    return decode_rows(views.query(load_sql("demand/term_rates"), {"until": until}), TermRate)


def read_shared_queues(views: Views) -> list[SharedQueue]:
    """Return the queues of schedulers whose queues have no namespace."""
    return decode_rows(views.query(load_sql("demand/shared_queues")), SharedQueue)


def read_similar_runs(views: Views, window: Window) -> list[SimilarRuns]:
    """Return the runs of the window, those with similar names together."""
    parameters = {"since": window.start, "until": window.end}
    return decode_rows(views.query(load_sql("demand/similar_runs"), parameters), SimilarRuns)


@cache
def read_kind_profiles() -> dict[str, KindProfile]:
    """Return the profiles of workloads by their kind."""
    return {row.workload_kind: row for row in load_records("demand/profiles", KindProfile)}
