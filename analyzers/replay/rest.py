"""The part of each stretch in which its pods, too, were at rest, as it looked at each moment."""

import polars as pl

from analyzers.looks import bounds
from analyzers.queries import steps
from analyzers.witnesses import AT_WORK_STEPS, BYTES_S, CPU_SHARE
from fallow.seams import Views
from fallow.window import Window

_KEY = ("cluster", "namespace", "pod", "pod_uid")


def parted(
    views: Views, window: Window, rows: pl.DataFrame, held: pl.DataFrame, *, least_us: int,
    slack_us: int,
) -> pl.DataFrame:  # fmt: skip
    """Cut each row (span, k, start, end, at) down to the last part that is long enough.

    See `IdleAnalyzer._parted`: work parts a stretch; work less than `least_us` apart is one
    stretch of work. `held` are the stretches' pods (span, cluster, namespace, pod, pod_uid, start,
    end). Rows whose last part ended longer ago than the slack are over.
    """
    named = held.select("span", *_KEY, "start", "end").unique()
    told = pl.DataFrame(
        views.query(
            steps(*AT_WORK_STEPS, "at_work/known"),
            {
                **bounds(window),
                "held": named.write_json(),
                "cpu_share": CPU_SHARE,
                "bytes_s": BYTES_S,
                "after_us": 0,
            },
        )
    )
    if told.is_empty():
        return rows
    known = _islands(told.cast(pl.Int64), least_us)
    before = rows.sort("end").join_asof(
        known.sort("known_us"),
        left_on="end",
        right_on="known_us",
        by="span",
        strategy="backward",
        allow_exact_matches=False,
        check_sortedness=False,
    )
    start, end = pl.col("start"), pl.col("end")
    begun = pl.max_horizontal(start, "from_us")
    done = pl.min_horizontal(pl.max_horizontal(start, "to_us"), end)
    rested = pl.max_horizontal(start, pl.coalesce("rested_us", start))
    parts = (
        (done, end, end - done),
        (begun, done, done - begun),
        (rested, begun, begun - rested),
    )
    cut = before.with_columns(
        part=pl.when(pl.col("to_us").is_null() | (parts[0][2] >= least_us))
        .then(0)
        .when(parts[1][2] >= least_us)
        .then(1)
        .when(parts[2][2] >= least_us)
        .then(2)
    ).drop_nulls("part")
    chosen = pl.col("part")
    cut = cut.with_columns(
        start=pl.when(pl.col("to_us").is_null())
        .then(start)
        .when(chosen == 0)
        .then(parts[0][0])
        .when(chosen == 1)
        .then(parts[1][0])
        .otherwise(parts[2][0]),
        end=pl.when(pl.col("to_us").is_null() | (chosen == 0))
        .then(end)
        .when(chosen == 1)
        .then(parts[1][1])
        .otherwise(parts[2][1]),
    )
    kept = cut.filter(pl.col("end") >= pl.col("at") - slack_us)
    return kept.select(rows.columns).sort("span", "k")


def _islands(told: pl.DataFrame, least_us: int) -> pl.DataFrame:
    """Return what was known of the last stretch of work, by when it was known.

    from_us and to_us are the stretch of work so far, rested_us the end of the one before it.
    """
    told = told.sort("span", "from_us", "to_us").with_columns(
        before=pl.col("to_us").cum_max().shift(1).over("span")
    )
    fresh = pl.col("before").is_null() | (pl.col("from_us") - pl.col("before") >= least_us)
    told = told.with_columns(island=fresh.cast(pl.Int64).cum_sum().over("span"))
    told = told.with_columns(
        pl.col("from_us").min().over("span", "island").alias("from_us"),
        rested_us=pl.col("before").first().over("span", "island"),
    )
    told = told.sort("span", "island", "known_us", "to_us").with_columns(
        pl.col("to_us").cum_max().over("span", "island")
    )
    told = told.sort("span", "known_us", "to_us")
    return told.select("span", "known_us", "from_us", "to_us", "rested_us").unique(
        ["span", "known_us"], keep="last", maintain_order=True
    )
