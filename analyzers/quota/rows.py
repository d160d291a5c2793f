"""Read quotas, refusals and the ledger by the hour, and the capacity of clusters."""

from collections.abc import Mapping
from datetime import datetime

import polars as pl

from analyzers.queries import compose_steps, load_sql
from fallow.protocols import Views
from fallow.rows import Row, decode_rows


class GpuNodesTotal(Row, frozen=True):
    """The capacity of a cluster's nodes with GPUs (`capacity.sql`)."""

    cluster: str
    gpus: float
    cpu: float | None
    memory: float | None
    models: int


def read_capacity(views: Views, span: Mapping[str, datetime]) -> dict[str, GpuNodesTotal]:
    """Return the capacity of the nodes with GPUs, by cluster."""
    rows = decode_rows(views.query(load_sql("quota/capacity"), span), GpuNodesTotal)
    return {row.cluster: row for row in rows}


def read_table(views: Views, *steps: str, span: Mapping[str, datetime]) -> pl.DataFrame:
    """Return the rows of the last step, by the hour, as columns; `hour` is hours since 1970."""
    rows = pl.DataFrame(views.query(compose_steps(*steps), span))
    return rows.with_columns(pl.col("hour").dt.epoch("s") // 3600)
