"""Read the GPUs that pods have and wait for, hour by hour and queue by queue."""

from collections.abc import Mapping
from datetime import datetime

import polars as pl

from analyzers.queries import LAST_SCRAPES, compose_steps
from fallow.protocols import Views
from warehouse.steps import VALUE_ERAS

LIFETIMES = (VALUE_ERAS, "warehouse:inventory/lives")
"""Steps: when pods were created, placed and ended."""


def read_demand(views: Views, span: Mapping[str, datetime]) -> pl.DataFrame:
    """Return the GPUs that placed pods have and others wait for, by the hour."""
    steps = compose_steps(LAST_SCRAPES, *LIFETIMES, "queue_demand")
    edges = pl.DataFrame(views.query(steps, span))
    return sum_by_hour(edges.with_columns(pl.col("hour").dt.epoch("s") // 3600), span)


def sum_by_hour(edges: pl.DataFrame, span: Mapping[str, datetime]) -> pl.DataFrame:
    """Return the allocated and the waiting GPUs of each hour, from the changes in it."""
    keys = ["cluster", "namespace", "queue", "profile", "placed"]
    amounts = ["gpus", "cpu", "memory"]
    if edges.is_empty():
        return edges.select(*keys, "hour", *amounts)
    since, until = (convert_to_hour(span[name]) for name in ("since", "until"))
    hours = pl.int_range(since, until + 1, eager=True).alias("hour")
    grid = edges.select(keys).unique().sort(keys).join(hours.to_frame(), how="cross")
    full = grid.join(edges, on=[*keys, "hour"], how="left").fill_null(0)
    return full.select(
        *keys,
        "hour",
        *(
            (pl.col(a).cum_sum().over(keys) - pl.col(a) + pl.col(f"{a}_first")).alias(a)
            for a in amounts
        ),
    )


def convert_to_hour(time: datetime) -> int:
    """Return hours since 1970."""
    return int(time.timestamp()) // 3600
