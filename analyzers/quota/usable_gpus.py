"""Count free GPUs of the models that pods wait for: those of another model do not help."""

from collections.abc import Mapping
from datetime import datetime

import polars as pl

from analyzers.queries import LAST_SCRAPES, compose_steps
from fallow.gpu_models import find_gpu_model
from fallow.protocols import Views


def count_usable(
    views: Views, span: Mapping[str, datetime], refused: pl.DataFrame
) -> dict[str, dict[int, float]]:
    """Return, by cluster and hour since 1970, free GPUs that pods without a node could take.

    Pods that name a product take that model's GPUs. Pods without a product take the rest of any
    model. Pods that a quota `refused` (cluster, hour, gpus) do so too: the product they would have
    named is unknown.
    """
    free, waiting = (_read_hourly(views, name, span) for name in ("free_gpus", "waiting_gpus"))
    more = refused.select("cluster", "hour", pl.lit("").alias("model"), "gpus")
    waiting = (
        pl.concat([waiting, more], how="vertical_relaxed")
        .group_by("cluster", "hour", "model")
        .agg(pl.col("gpus").sum())
    )
    named = waiting.filter(pl.col("model") != "")
    either = waiting.filter(pl.col("model") == "").select("cluster", "hour", either="gpus")
    keys = ["cluster", "hour"]
    sums = (
        free.join(named.rename({"gpus": "named"}), on=[*keys, "model"], how="left")
        .with_columns(matched=pl.min_horizontal("gpus", pl.col("named").fill_null(0)))
        .group_by(keys)
        .agg(pl.col("gpus").sum(), pl.col("matched").sum())
        .join(either, on=keys, how="left")
        .with_columns(
            usable=pl.col("matched")
            + pl.min_horizontal(pl.col("gpus") - pl.col("matched"), pl.col("either").fill_null(0))
        )
    )
    usable: dict[str, dict[int, float]] = {}
    for cluster, hour, gpus in sums.select(*keys, "usable").iter_rows():
        usable.setdefault(cluster, {})[hour] = gpus
    return usable


def _read_hourly(views: Views, name: str, span: Mapping[str, datetime]) -> pl.DataFrame:
    """Return GPUs by cluster, hour and canonical model (empty = any)."""
    rows = pl.DataFrame(views.query(compose_steps(LAST_SCRAPES, f"quota/{name}"), span))
    rows = rows.rename({"product": "model"}, strict=False)
    names = {
        m: model.gpu_model if (model := find_gpu_model(m)) else m for m in rows["model"].unique()
    }
    return (
        rows.with_columns(
            pl.col("hour").dt.epoch("s") // 3600,
            pl.col("model").replace(names),
            pl.col("gpus").cast(pl.Float64),
        )
        .group_by("cluster", "hour", "model")
        .agg(pl.col("gpus").sum())
    )
