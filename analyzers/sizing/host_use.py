"""Join what pods do on their hosts to their requests, and sum it up to workloads."""

from datetime import timedelta

import polars as pl

from analyzers.sizing.rows import read_pod_hosts
from analyzers.workload_rows import OWNER
from fallow.protocols import Views
from fallow.window import Window

HOST_DAYS = 2
"""Host samples are read for the last days only: raw samples are many and soon archived."""


def add_hosts(
    views: Views, window: Window, pods: pl.DataFrame, judged: pl.DataFrame
) -> pl.DataFrame:
    """Join host data of pods: of judged workloads, and of those with large requests."""
    chosen = pods.filter(
        pl.struct(OWNER).is_in(judged.select(pl.struct(OWNER).alias("key"))["key"].implode())
        | (pl.col("cpu_request_milli") > pl.col("gpus") * pl.col("fair_milli"))
        | (pl.col("memory_request_bytes") > pl.col("gpus") * pl.col("fair_bytes"))
    )
    names = ["cluster", "namespace", "pod"]
    since = max(window.start, window.end - timedelta(days=HOST_DAYS))
    hosts = read_pod_hosts(views, since, window.end, chosen.select(names))
    return pods.join(hosts, on=names, how="left", maintain_order="left")


def sum_hosts(pods: pl.DataFrame) -> pl.DataFrame:
    """Return the host metrics of each workload: throttled share, CPU in use of its limit, bytes/s.

    The throttled share is weighted by the hours of the pods.
    """
    weight = pl.col("hours")
    hosts = pods.group_by(OWNER).agg(
        throttled=(pl.col("throttled") * weight).sum()
        / weight.filter(pl.col("throttled").is_not_null()).sum(),
        cpu_full=(pl.col("cpu_cores") * 1000 / pl.col("cpu_limit_milli")).mean(),
        net_bps=pl.col("net_bps").mean(),
    )
    return hosts.with_columns(pl.col("throttled").fill_nan(None))
