"""Read what is judged row by row: devices, pods, idle power, unknown hours, judged stretches."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
import polars as pl

from analyzers.queries import compose_steps, load_sql
from analyzers.rows import decode_frame
from analyzers.workload_rows import WorkloadRow
from fallow.idle_details import Hold
from fallow.models import Evidence, Verdict
from fallow.protocols import Views
from fallow.rows import Row, decode_rows
from fallow.window import Window
from warehouse.steps import ACTIVE_SAMPLE


class JudgedStretch(WorkloadRow, frozen=True):
    """A stretch of a workload at one time, with its verdict: the columns of `judge.SCHEMA`."""

    case: int
    k: int
    mark: int
    team: str | None
    kind: str
    evidence: Evidence | None
    actionable: bool
    confidence: float
    coverage: float
    gpu_hours: float
    usd: float | None
    start: int
    end: int
    at: int
    state: str
    verdict: Verdict
    gpu_us: float
    samples: int
    devices: int
    power_w: float | None
    band_w: float | None
    band: str | None
    processes: float | None
    idle_clock: float | None
    kernel_age_s: float | None
    numbers: list[int]
    """Of its idle devices."""
    judgement: int
    gap: str | None
    longest_rest_us: int | None
    wanted: float | None
    exposures: int | None
    returns: int | None
    own_days: int | None
    own_returns: int | None
    holds: list[Hold] | None
    """What holds its pods (`analyzers.holds`)."""
    waiting: float | None
    """Requests at its servers, when some were held last."""
    running: float | None
    swapped: float | None


class AllocatedDevice(Row, frozen=True):
    """A device that was allocated in the window (`allocated_devices.sql`)."""

    cluster: str
    device: str
    node: str | None
    parent: str | None
    model: str | None
    interval_s: float | None
    weight: float


class NumberedDevice(Row, frozen=True):
    """An allocated device by its number, with its canonical model (`samples.plan_query`)."""

    device: str
    node: str | None
    model: str | None
    gpu_model: str | None
    weight: float
    interval_s: float | None


class SampleCounts(Row, frozen=True):
    """Samples of a window, raw and rolled up, and the time with states (`sample_counts.sql`)."""

    samples: int
    rolled: int
    accounted_from: int | None
    accounted_until: int | None


class KeptHour(Row, frozen=True):
    """The start of an hour whose rows are kept (us, `kept_hours.sql`)."""

    hour_us: int


class RollupMeasures(Row, frozen=True):
    """Which measures the window's rollups have (`rollup_measures.sql`)."""

    energy: bool
    traffic: bool
    procs: bool
    kernels: bool
    every: bool


class ComputeShare(Row, frozen=True):
    """How many samples of a device computed (`compute_shares.sql`, `compute_share_samples.sql`)."""

    span: int
    device: str
    samples: int | None
    busy: int | None


class StretchGap(WorkloadRow, frozen=True):
    """The end of an idle stretch and the start of its workload's next one (us)."""

    span: int
    end: int
    next: int


class IdlePower(Row, frozen=True):
    """The idle power of a model as accounting had written it by a time (`idle_power.sql`)."""

    k: int
    gpu_model: str
    band_w: float
    band: str


class StretchPod(Row, frozen=True):
    """A pod of a stretch in the inventory (`stretch_inventory.sql`)."""

    cluster: str
    node: str | None
    uid: str
    workload_kind: str | None
    phase: str | None
    cpu_request_milli: int | None
    annotations: str | None
    labels: str | None
    namespace: str
    containers: str | None
    started_us: int | None


class UnknownHours(WorkloadRow, frozen=True):
    """GPU-hours of a workload without usable telemetry (`unknown_hours.sql`)."""

    gpu_hours: float


def decode_stretch(row: Mapping[str, Any]) -> JudgedStretch:
    """Return one row of judged stretches."""
    return msgspec.convert(row, JudgedStretch)


def list_stretches(frame: pl.DataFrame) -> list[JudgedStretch]:
    """Return the rows of judged stretches."""
    return [decode_stretch(row) for row in frame.iter_rows(named=True)]


def list_devices(frame: pl.DataFrame) -> list[NumberedDevice]:
    """Return the names of numbered devices."""
    return decode_frame(frame, NumberedDevice)


def read_devices(views: Views, window: Window, bucket: Mapping[str, Any]) -> list[AllocatedDevice]:
    """Return the devices that were allocated in a window to the workloads of a bucket."""
    parameters = {**window.bounds(), **bucket}
    return decode_rows(views.query(load_sql("idle/allocated_devices"), parameters), AllocatedDevice)


def count_samples(views: Views, window: Window) -> SampleCounts:
    """Return how many samples a window has."""
    return decode_rows(views.query(load_sql("idle/sample_counts"), window.bounds()), SampleCounts)[
        0
    ]


def read_measures(views: Views, window: Window) -> RollupMeasures:
    """Return which measures the rollups of a window have."""
    return decode_rows(
        views.query(load_sql("idle/rollup_measures"), window.bounds()), RollupMeasures
    )[0]


def read_kept_hours(views: Views, window: Window, shape: str) -> list[KeptHour]:
    """Return the hours whose rows are kept, in order."""
    parameters = {**window.bounds(), "shape": shape}
    return decode_rows(views.query(load_sql("idle/kept_hours"), parameters), KeptHour)


def read_compute_shares(
    views: Views, parameters: Mapping[str, Any], *, raw: bool
) -> list[ComputeShare]:
    """Return how many samples of devices computed, from raw samples or from rollups."""
    if raw:
        sql = compose_steps(ACTIVE_SAMPLE, "idle/compute_share_samples")
    else:
        sql = load_sql("idle/compute_shares")
    return decode_rows(views.query(sql, parameters), ComputeShare)


def read_idle_power(views: Views, times: Sequence[datetime]) -> list[IdlePower]:
    """Return the idle power of each model that accounting had written by each time."""
    at = [t.astimezone(UTC).replace(tzinfo=None) for t in times]
    parameters = {"times": at, "since": at[0], "until": at[-1]}
    return decode_rows(views.query(load_sql("idle/idle_power"), parameters), IdlePower)


def read_inventory(views: Views, uids: Sequence[str]) -> dict[tuple[str, str], StretchPod]:
    """Return the inventory of pods, by cluster and uid."""
    parameters = {"uids": sorted(uids)}
    pods = decode_rows(views.query(load_sql("idle/stretch_inventory"), parameters), StretchPod)
    return {(pod.cluster, pod.uid): pod for pod in pods}


def read_unknown_hours(views: Views, window: Window) -> list[UnknownHours]:
    """Return the GPU-hours of workloads without usable telemetry, most hours first."""
    return decode_rows(views.query(load_sql("idle/unknown_hours"), window.bounds()), UnknownHours)
