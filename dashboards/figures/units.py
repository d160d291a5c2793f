"""Compute unit costs: dollars per training run, million requests or tokens, working GPU-hour.

A unit's cost includes everything paid for the workload, also its idle and starting hours.
"""

from collections.abc import Sequence

import msgspec
import numpy as np
import pyarrow as pa

from dashboards.figures.query import BY_DAY, BY_HOUR, Filters, run_query
from fallow.errors import UsageError
from fallow.protocols import Views
from fallow.window import Window

KEYS = ("team", "namespace", "model", "pool", "cluster")
RUNS = (
    "Job", "CronJob", "JobSet", "PyTorchJob", "TFJob", "MPIJob", "XGBoostJob", "PaddleJob",
    "JAXJob", "TrainJob", "RayJob", "AppWrapper", "SparkApplication", "Workflow",
)  # fmt: skip
"""Kinds of workloads that end: each workload of them is one run."""


LEAST_PRODUCTIVE_GPU_HOURS = 1.0
LEAST_COUNTED = 10_000
"""Below these amounts a cost per unit is unknown: one hour, a hundredth of a million. Less is
extrapolated so far that the figure says how little there was, not what the work costs."""
BINS = 20
LEAST = 4
"""Values from which quartiles say anything."""


class Distribution(msgspec.Struct, frozen=True):
    """Costs of many units: their median, 90th percentile and maximum, and where outliers begin."""

    count: int
    median: float
    p90: float
    most: float
    fence: float
    """Third quartile + 1.5 x the distance of the quartiles (Tukey); a value above is an outlier."""
    outliers: int


def measure_distribution(values: Sequence[float]) -> Distribution | None:
    """Return the distribution of costs; None = there are none. Few values have no outliers."""
    if not values:
        return None
    first, median, third, p90 = (float(q) for q in np.quantile(values, (0.25, 0.5, 0.75, 0.9)))
    most = float(max(values))
    fence = third + 1.5 * (third - first) if len(values) >= LEAST else most
    return Distribution(
        len(values), median, p90, most, fence, sum(value > fence for value in values)
    )


def bin_costs(values: Sequence[float], fence: float) -> list[tuple[float, float, int]]:
    """Return bins of costs up to the fence as (from, to, count); outliers are a bin beyond it."""
    inside = [value for value in values if value <= fence]
    counts, edges = np.histogram(inside, bins=BINS, range=(0.0, fence or 1.0))
    bins = [
        (float(low), float(high), int(count))
        for low, high, count in zip(edges[:-1], edges[1:], counts, strict=True)
    ]
    beyond = len(values) - len(inside)
    return [*bins, (float(edges[-1]), float(edges[-1] + edges[1]), beyond)] if beyond else bins


def read_by_owner(views: Views, window: Window, filters: Filters, key: str) -> pa.Table:
    """Return the cost of a productive GPU-hour per name of `key`, the most expensive name first.

    Columns: name, usd, gpu_hours, productive_gpu_hours, usd_per_gpu_hour,
    usd_per_productive_gpu_hour (null = fewer productive hours than `LEAST_PRODUCTIVE_GPU_HOURS`, or
    no price).

    Raises:
        UsageError: `key` is none of `KEYS`.
    """
    if key not in KEYS:
        raise UsageError(f"cannot group units by {key!r}", hint=f"legal: {', '.join(KEYS)}")
    return run_query(
        views, (*BY_HOUR, "units/owners"), window, filters, by=key, least=LEAST_PRODUCTIVE_GPU_HOURS
    )


def read_runs(views: Views, window: Window, filters: Filters) -> pa.Table:
    """Return a row per training or batch run with GPUs in the window, the most expensive first.

    Columns: cluster, team, workload, began, last_hour (UTC), gpu_hours, productive_gpu_hours, usd.
    A run that began before the window or continues after it is partial.
    """
    return run_query(views, (*BY_DAY, "units/runs"), window, filters, kinds=[*RUNS])


def read_run_costs(views: Views, window: Window, filters: Filters) -> Distribution | None:
    """Return the distribution of what the runs of `read_runs` cost; None = none has a price."""
    costs = read_runs(views, window, filters)["usd"].to_pylist()
    return measure_distribution([float(usd) for usd in costs if usd is not None])


def read_served(views: Views, window: Window, filters: Filters) -> pa.Table:
    """Return a row per workload that served in the window, the most expensive first.

    Columns: cluster, team, workload, gpu_hours, usd, requests, tokens (null = its telemetry counts
    none), usd_per_million_requests, usd_per_million_tokens (null = fewer than `LEAST_COUNTED`).
    """
    return run_query(views, _find_unit("served"), window, filters, least=LEAST_COUNTED)


def read_trained(views: Views, window: Window, filters: Filters) -> pa.Table:
    """Return a row per workload that reports its training work, the most expensive first.

    Columns: cluster, team, workload, work (the metric counted), amount, gpu_hours, usd,
    usd_per_million (of what the metric counts; null = fewer than `LEAST_COUNTED`).
    """
    return run_query(views, _find_unit("trained"), window, filters, least=LEAST_COUNTED)


def _find_unit(name: str) -> tuple[str, ...]:
    """Return the steps of a unit of work: the amount by pods' workload, and its cost."""
    return (
        *BY_DAY,
        "units/pods",
        f"units/{name}/counted",
        "units/unit_costs",
        f"units/{name}/{name}",
    )
