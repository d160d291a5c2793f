"""Read the throughput of jobs by their number of GPUs, and the jobs that report none."""

from datetime import datetime

from analyzers.queries import OWNERS, compose_steps, load_sql
from analyzers.workload_rows import WorkloadRow
from fallow.protocols import Views
from fallow.rows import Row, decode_rows
from fallow.window import Window

PACES = compose_steps(OWNERS, "scaling/paces")
"""The query of the throughput of jobs."""


class JobPace(WorkloadRow, frozen=True):
    """The throughput of a job on one number of GPUs: medians of its whole hours (`paces.sql`)."""

    model: str
    gpus: int
    team: str | None
    family: str | None
    work: str | None
    hours: int
    first_hour: datetime
    last_hour: datetime
    world_size: int | None
    steps_per_s: float | None
    work_per_s: float | None


class SilentJobs(Row, frozen=True):
    """How many jobs of a cluster report no throughput (`jobs_without_throughput.sql`)."""

    cluster: str
    jobs: int


def read_paces(views: Views, window: Window) -> list[JobPace]:
    """Return the throughput of each job by its number of GPUs."""
    return decode_rows(views.query(PACES, window.bounds()), JobPace)


def read_silent_jobs(views: Views, window: Window, kinds: list[str]) -> list[SilentJobs]:
    """Return the clusters with jobs of these kinds that report no throughput."""
    sql = load_sql("scaling/jobs_without_throughput")
    return decode_rows(views.query(sql, {**window.bounds(), "kinds": kinds}), SilentJobs)
