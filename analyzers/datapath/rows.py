"""The rows that the datapath analyzer reads: one record per query."""

from collections.abc import Sequence

from analyzers.queries import OWNERS, compose_steps, load_sql
from analyzers.workload_rows import WorkloadRow
from fallow.protocols import Views
from fallow.rows import Row, decode_rows
from fallow.settings.datapath import DatapathSettings, Dataset
from fallow.window import Window


class WorkloadWaits(WorkloadRow, frozen=True):
    """Hours in which a workload's GPUs are idle while much data arrives (`waits.sql`)."""

    team: str | None
    gpu_hours: float
    watched: float
    """GPU-hours in which the host of its pods has metrics."""
    waited: float
    """GPU-hours of rest in these hours."""
    hours: int
    input_bps: float | None
    """Bytes per second and GPU in these hours; None = there are none."""
    act: float | None


class ClaimReads(Row, frozen=True):
    """What one workload may have read of a dataset, in bytes (`reads.sql`)."""

    dataset: int
    """Its number in the settings, from 0."""
    cluster: str
    workload_kind: str | None
    workload: str | None
    pods: int
    claims: int | None
    lived_s: float
    seen_s: float
    disk: float
    network: float
    whole: bool


def read_waits(views: Views, window: Window, settings: DatapathSettings) -> list[WorkloadWaits]:
    """Return the hours of each workload that worked, and those in which it waited for data."""
    parameters = {
        **window.bounds(),
        "activity": settings.activity,
        "input_bps": settings.input_bps,
    }
    return decode_rows(
        views.query(compose_steps(OWNERS, "datapath/waits"), parameters), WorkloadWaits
    )


def read_claims(views: Views, window: Window, datasets: Sequence[Dataset]) -> list[ClaimReads]:
    """Return the reads of the pods that mount the claims of datasets."""
    parameters = {
        **window.bounds(),
        "datasets": list(range(len(datasets))),
        "namespaces": [d.namespace for d in datasets],
        "claims": [d.claim for d in datasets],
    }
    return decode_rows(views.query(load_sql("datapath/reads"), parameters), ClaimReads)
