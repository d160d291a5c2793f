"""Read demand, arrivals, capacity and prices of each cluster."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import msgspec
import numpy as np
import polars as pl

from analyzers.arrays import Doubles
from analyzers.demand.forecast import DAY, DemandForecast, forecast_day
from analyzers.demand.quarter import QuarterPlan, plan_quarter
from analyzers.demand.reservations import ReservedGpus
from analyzers.demand.rows import (
    GangRow,
    read_arrivals,
    read_gangs,
    read_listed_clusters,
    read_shared_queues,
    read_term_rates,
)
from analyzers.demand.wait_replay import GangRequest, WaitReplay, price_targets
from analyzers.pending import MeasureTimes, read_pending, sum_gpus
from analyzers.queries import NODE_SHARES, compose_steps
from analyzers.query_cache import cache_query
from analyzers.queue_demand import read_demand
from fallow.gpu_models import find_gpu_model
from fallow.protocols import Views
from fallow.settings.capacity import DemandSettings
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
    quarter: QuarterPlan | None
    """None = no ledger, or no whole day of demand."""
    waits: WaitReplay | None
    """None = no ledger."""
    waiting_gpus: float = 0.0
    """GPUs that pods without a node request at the window's end."""


@cache_query
def read_clusters(views: Views, window: Window, settings: DemandSettings) -> list[ClusterDemand]:
    """Return the clusters in which pods requested GPUs, by name."""
    span = {"since": window.end - timedelta(days=settings.history_days), "until": window.end}
    pods = _name_queues(read_demand(views, span), views)
    arrived = read_arrivals(views, span["since"], span["until"], settings.lead)
    hours = window.whole(timedelta(hours=1)).bounds()
    sql = compose_steps(*NODE_SHARES, "demand/capacity")
    bought = pl.DataFrame(views.query(sql, {**hours, "region": ""}))
    demands = []
    gangs = read_gangs(views, span["since"], span["until"])
    listed = read_listed_clusters(views)
    waiting = read_pending(views, MeasureTimes.at([row.cluster for row in listed], window.end))
    for row in listed:
        name, since = row.cluster, max(_make_aware(row.first_seen), span["since"])
        if since >= window.end:
            continue
        mine = pods.filter(pl.col("cluster") == name)
        forecasts, days = _forecast_queues(mine, since, window.end, settings)
        capacity = _build_capacity(bought.filter(pl.col("cluster") == name))
        own_gangs = [gang for gang in gangs if gang.cluster == name]
        demands.append(
            ClusterDemand(
                name,
                days,
                forecasts,
                window.end.replace(hour=0, minute=0, second=0, microsecond=0),
                {_make_aware(a.bucket): a.gpus for a in arrived if a.cluster == name},
                since,
                capacity,
                _plan_quarter(mine, since, window.end, capacity, settings),
                _replay(own_gangs, since, capacity, settings),
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


def _list_whole_days(since: datetime, until: datetime) -> tuple[int, int]:
    """Return the first and the end hour (since 1970) of the whole days with complete data."""
    hour = int(-(-since.timestamp() // 3600))
    return hour + (-hour) % DAY, int(until.timestamp()) // 3600 // DAY * DAY


def _plan_quarter(
    pods: pl.DataFrame,
    since: datetime,
    until: datetime,
    capacity: ClusterCapacity | None,
    settings: DemandSettings,
) -> QuarterPlan | None:
    """Plan the next quarter from the demand of all queues; None = there is nothing to plan."""
    first, last = _list_whole_days(since, until)
    if capacity is None or last <= first or pods.is_empty():
        return None
    inside = pods.filter(pl.col("hour").is_between(first, last, closed="left"))
    sums = inside.group_by("hour").agg(pl.col("gpus").sum())
    demand = np.zeros(last - first)
    demand[sums["hour"].to_numpy() - first] = sums["gpus"].to_numpy()
    return plan_quarter(
        np.maximum(demand, 0),
        datetime.fromtimestamp(first * 3600, UTC).date(),
        capacity.gpus,
        capacity.usd_h,
        quantile=settings.quarter_quantile,
        holidays=frozenset(settings.holidays),
    )


def _replay(
    gangs: Sequence[GangRow],
    since: datetime,
    capacity: ClusterCapacity | None,
    settings: DemandSettings,
) -> WaitReplay | None:
    """Price the targets of the wait; requests from before `since` only hold GPUs."""
    if capacity is None:
        return None
    runs = [g.ended_s - g.placed_s for g in gangs if g.placed_s is not None and g.ended_s]
    typical = float(np.median(runs)) if runs else 3600.0
    since_s = since.timestamp()
    requests = []
    for gang in gangs:
        ended = gang.ended_s is not None and gang.placed_s is not None
        so_far = max(0.0, (gang.seen_s or gang.created_s) - (gang.placed_s or gang.created_s))
        placed = gang.placed_s is not None and gang.created_s >= since_s
        requests.append(
            GangRequest(
                gang.created_s,
                gang.gpus,
                max(0.0, (gang.ended_s or 0) - (gang.placed_s or 0)) if ended else so_far + typical,
                max(0.0, (gang.placed_s or 0) - gang.created_s) if placed else None,
            )
        )
    targets = [target.total_seconds() for target in settings.wait_targets]
    guessed = len(gangs) - len(runs)
    return price_targets(requests, capacity.gpus, capacity.usd_h, targets, guessed)


def _forecast_queues(
    pods: pl.DataFrame, since: datetime, until: datetime, settings: DemandSettings
) -> tuple[dict[str, DemandForecast], int]:
    """Forecast the queues with the most GPU-hours, from whole days with complete data."""
    first, last = _list_whole_days(since, until)
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

        def course(value: str, *kinds: str, own: pl.DataFrame = own) -> Doubles:
            gpus = np.zeros(len(hours))
            part = own.filter(pl.col("capacity_type").is_in(kinds))
            part = part.group_by("hour").agg(pl.col(value).sum())
            gpus[np.searchsorted(hours, part["hour"].to_numpy())] = part[value].to_numpy()
            return gpus

        reserved[str(model)] = ReservedGpus(
            course("allocated", "reserved", "committed"),
            course("gpu_hours", "reserved", "committed"),
            course("allocated", "on-demand"),
            course("free", "reserved"),
        )
    return ClusterCapacity(
        hours.astype(np.float64),
        sums["free"].to_numpy(),
        float(sums["gpu_hours"].mean() or 0),  # type: ignore[arg-type]
        float(rows["usd"].sum()) / paid if priced else None,
        reserved,
    )


def _make_aware(time: datetime) -> datetime:
    return time if time.tzinfo else time.replace(tzinfo=UTC)
