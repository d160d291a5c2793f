"""Read demand, arrivals, capacity and prices of each cluster."""

from datetime import UTC, datetime, timedelta

import msgspec
import numpy as np
import polars as pl

from analyzers.arrays import Doubles
from analyzers.demand.forecast import DAY, DemandForecast, forecast_day
from analyzers.demand.reservations import ReservedGpus
from analyzers.demand.rows import (
    read_arrivals,
    read_listed_clusters,
    read_shared_queues,
    read_term_rates,
)
from analyzers.pending import MeasureTimes, read_pending, sum_gpus
from analyzers.queries import load_sql
from analyzers.query_cache import cache_query
from analyzers.queue_demand import read_demand
from fallow.capacity_settings import DemandSettings
from fallow.gpu_models import find_gpu_model
from fallow.protocols import Views
from fallow.window import Window


class ClusterCapacity(msgspec.Struct, frozen=True):
    """The ledger's figures of a cluster in the window, hour by hour."""

    hours: Doubles
    """Hours since 1970."""
    free: Doubles
    gpus: float
    usd_h: float | None
    """Mean price of a GPU-hour; None where a part has none."""
    reserved: dict[str, ReservedGpus]
    """By GPU model."""


class ClusterDemand(msgspec.Struct, frozen=True):
    """One cluster's demand, and its capacity."""

    name: str
    history_days: int
    forecasts: dict[str, DemandForecast]
    """By queue (a namespace where its pods name no queue), and `(all)`."""
    next_day: datetime
    arrivals: dict[datetime, float]
    since: datetime
    """The start of the arrivals."""
    capacity: ClusterCapacity | None
    waiting_gpus: float = 0.0
    """GPUs that pods without a node request at the window's end."""


@cache_query
def read_clusters(views: Views, window: Window, settings: DemandSettings) -> list[ClusterDemand]:
    """Return the clusters in which pods requested GPUs, by name."""
    span = {"since": window.end - timedelta(days=settings.history_days), "until": window.end}
    pods = _name_queues(read_demand(views, span), views)
    arrived = read_arrivals(views, span["since"], span["until"], settings.lead)
    bought = pl.DataFrame(
        views.query(load_sql("demand/capacity"), {"since": window.start, "until": window.end})
    )
    demands = []
    listed = read_listed_clusters(views)
    waiting = read_pending(views, MeasureTimes.at([row.cluster for row in listed], window.end))
    for row in listed:
        name, since = row.cluster, max(_make_aware(row.first_seen), span["since"])
        if since >= window.end:
            continue
        mine = pods.filter(pl.col("cluster") == name)
        forecasts, days = _forecast_queues(mine, since, window.end, settings)
        demands.append(
            ClusterDemand(
                name,
                days,
                forecasts,
                window.end.replace(hour=0, minute=0, second=0, microsecond=0),
                {_make_aware(a.bucket): a.gpus for a in arrived if a.cluster == name},
                since,
                _build_capacity(bought.filter(pl.col("cluster") == name)),
                round(sum_gpus(waiting.get((name, 1), {})), 6),
            )
        )
    return demands


def read_price_ratios(views: Views, window: Window) -> dict[str, float]:
    """Return the price of a reserved GPU-hour divided by the hourly price, by model."""
    prices: dict[str, dict[str, float]] = {}
    for row in read_term_rates(views, window.end):
        if row.usd_h is not None:
            prices.setdefault(row.model, {})[row.term] = row.usd_h
    return {
        model: by["reserved"] / by["on-demand"]
        for model, by in prices.items()
        if "reserved" in by and "on-demand" in by
    }


def _name_queues(pods: pl.DataFrame, views: Views) -> pl.DataFrame:
    """Return the queue of each row: a namespace, its own queue, or a queue shared by namespaces."""
    names = [f"{row.cluster}/{row.name}" for row in read_shared_queues(views)]
    is_shared = pl.concat_str("cluster", pl.lit("/"), "queue").is_in(names)
    return pods.with_columns(
        name=pl.when(is_shared)
        .then(pl.col("queue"))
        .when(pl.col("queue") == "")
        .then(pl.col("namespace"))
        .otherwise(pl.concat_str("namespace", pl.lit("/"), "queue"))
    )


def _forecast_queues(
    pods: pl.DataFrame, since: datetime, until: datetime, settings: DemandSettings
) -> tuple[dict[str, DemandForecast], int]:
    """Forecast the queues with the most GPU-hours, from whole days with complete data."""
    hour = int(-(-since.timestamp() // 3600))
    first = hour + (-hour) % DAY
    last = int(until.timestamp()) // 3600 // DAY * DAY
    days = (last - first) // DAY
    if days < 1 or pods.is_empty():
        return {}, max(days, 0)
    inside = pods.filter(pl.col("hour").is_between(first, last, closed="left"))
    wide = (
        inside.group_by("hour", "name")
        .agg(pl.col("gpus").sum())
        .pivot("name", index="hour", values="gpus")
        .sort("hour")
        .drop("hour")
        .fill_null(0)
    )
    sums = wide.sum().row(0)
    names = sorted(wide.columns, key=lambda n: (-sums[wide.columns.index(n)], n))
    series = {"(all)": wide.sum_horizontal().to_numpy()} if len(names) > 1 else {}
    series |= {n: wide[n].to_numpy() for n in names[: settings.most_queues]}
    weekday = datetime.fromtimestamp(first * 3600, UTC).weekday()
    return {
        n: forecast_day(np.maximum(values, 0), weekday, settings.least_skill)
        for n, values in series.items()
    }, days


def _build_capacity(rows: pl.DataFrame) -> ClusterCapacity | None:
    if rows.is_empty():
        return None
    names = {
        m: gpu_model.gpu_model if (gpu_model := find_gpu_model(m)) else m
        for m in rows["model"].unique()
    }
    rows = rows.with_columns(
        hour=pl.col("hour").dt.epoch("s") // 3600, model=pl.col("model").replace(names)
    )
    sums = rows.group_by("hour").agg(pl.col("free", "gpu_hours").sum()).sort("hour")
    paid = float(rows["gpu_hours"].sum())
    priced = paid > 0 and not rows["unpriced"].sum()
    hours = sums["hour"].to_numpy()
    reserved = {}
    for (model,), own in rows.group_by("model", maintain_order=True):
        kind = pl.col("capacity_type")

        def course(only: pl.Expr, value: str, own: pl.DataFrame = own) -> Doubles:
            gpus = np.zeros(len(hours))
            part = own.filter(only).group_by("hour").agg(pl.col(value).sum())
            gpus[np.searchsorted(hours, part["hour"].to_numpy())] = part[value].to_numpy()
            return gpus

        reserved[str(model)] = ReservedGpus(
            course(kind == "reserved", "allocated"),
            course(kind == "reserved", "gpu_hours"),
            course(kind == "on-demand", "allocated"),
        )
    return ClusterCapacity(
        hours.astype(np.float64),
        sums["free"].to_numpy(),
        float(sums["gpu_hours"].mean() or 0),  # type: ignore[arg-type]
        float(rows["usd"].cast(pl.Float64).sum()) / paid if priced else None,
        reserved,
    )


def _make_aware(time: datetime) -> datetime:
    return time if time.tzinfo else time.replace(tzinfo=UTC)
