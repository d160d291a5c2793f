"""Find the parts of each stretch in which the hosts were quiescent too, as known at each time."""

import polars as pl

from analyzers.idle import spans
from analyzers.idle.signals import ACTIVITY_STEPS, AFTER_US, get_host_bounds
from analyzers.queries import compose_steps
from fallow.protocols import Views
from fallow.settings.idle import IdleSettings
from fallow.window import Window
from warehouse.signals.frozen import STILL_US

_KEY = ("cluster", "namespace", "pod", "pod_uid")
_ACTIVITY = ("span", "from_us", "to_us", "known_us")


def read_activity(
    views: Views, window: Window, holds: pl.DataFrame, settings: IdleSettings
) -> pl.DataFrame:
    """Return when the pods of stretches were active on their hosts, and when that was known.

    `holds` are their pods: span, cluster, namespace, pod, pod_uid, start, end. Returns span,
    from_us, to_us, known_us.
    """
    named = holds.select("span", *_KEY, "start", "end").unique()
    activity = pl.DataFrame(
        views.query(
            compose_steps(*ACTIVITY_STEPS, "idle/host_activity/activity"),
            {
                **window.bounds(),
                **get_host_bounds(settings),
                "holds": named.write_json(),
                "after_us": AFTER_US,
            },
        )
    )
    return activity.select(pl.col(name).cast(pl.Int64) for name in _ACTIVITY)


def find_repeats(members: pl.DataFrame) -> pl.DataFrame:
    """Return when devices of stretches (span, start, end) repeated old values, as `activity`."""
    return members.select(
        "span",
        from_us="start",
        to_us="end",
        known_us=pl.min_horizontal(pl.col("start") + STILL_US, "end"),
    )


def split_rows(
    rows: pl.DataFrame, activity: pl.DataFrame, *, least_us: int, over: bool = False
) -> pl.DataFrame:
    """Cut each idle row (span, k, start, end, at, state, slack_us) at the activity known then.

    Of a row that lasts, the result is the last part that is long enough, unless it ended longer ago
    than its slack. With `over` every part that is long enough is a row. Intervals with less
    than `least_us` between them are merged: no idle part between them could be long enough. Rows of
    state `partly idle` are not cut: their pods are active.
    """
    idle = rows.filter(pl.col("state") == "idle")
    if idle.is_empty() or activity.is_empty():
        return rows
    if over:
        others = rows.filter(pl.col("state") != "idle")
        return pl.concat([_list_parts(idle, activity, least_us), others]).sort("span", "k", "start")
    return _cut_to_last(idle, activity, least_us)


def _list_parts(rows: pl.DataFrame, activity: pl.DataFrame, least_us: int) -> pl.DataFrame:
    """Return each part that is long enough; the rows are of one time."""
    islands = (
        _merge_islands(activity, least_us)
        .group_by("span", "island")
        .agg(pl.col("from_us").min(), pl.col("to_us").max())
    )
    cut = spans.split_stretches(rows.select("span", "start", "end"), islands)
    cut = cut.filter(pl.col("end") - pl.col("start") >= least_us)
    return rows.drop("start", "end").join(cut, on="span").select(rows.columns)


def _cut_to_last(rows: pl.DataFrame, activity: pl.DataFrame, least_us: int) -> pl.DataFrame:
    """Cut each row down to the last part that is long enough and not over."""
    islands = _merge_islands(activity, least_us).unique(["span", "known_us"], keep="last")
    before = rows.sort("at").join_asof(
        islands.sort("known_us"),
        left_on="at",
        right_on="known_us",
        by="span",
        strategy="backward",
        allow_exact_matches=False,
        check_sortedness=False,
    )
    start, end = pl.col("start"), pl.col("end")
    begun = pl.min_horizontal(pl.max_horizontal(start, "from_us"), end)
    resumed = pl.min_horizontal(pl.max_horizontal(start, "to_us"), end)
    rested = pl.min_horizontal(pl.max_horizontal(start, pl.coalesce("rested_us", start)), end)
    candidates = (
        (resumed, end, end - resumed),
        (begun, resumed, resumed - begun),
        (rested, begun, begun - rested),
    )
    cut = before.with_columns(
        part=pl.when(pl.col("to_us").is_null() | (candidates[0][2] >= least_us))
        .then(0)
        .when(candidates[1][2] >= least_us)
        .then(1)
        .when(candidates[2][2] >= least_us)
        .then(2)
    ).drop_nulls("part")
    chosen = pl.col("part")
    cut = cut.with_columns(
        start=pl.when(pl.col("to_us").is_null())
        .then(start)
        .when(chosen == 0)
        .then(candidates[0][0])
        .when(chosen == 1)
        .then(candidates[1][0])
        .otherwise(candidates[2][0]),
        end=pl.when(pl.col("to_us").is_null() | (chosen == 0))
        .then(end)
        .when(chosen == 1)
        .then(candidates[1][1])
        .otherwise(candidates[2][1]),
    )
    lasting = cut.filter(pl.col("end") >= pl.col("at") - pl.col("slack_us"))
    return lasting.select(rows.columns).sort("span", "k")


def _merge_islands(activity: pl.DataFrame, least_us: int) -> pl.DataFrame:
    """Return what was known of each interval of activity, by time: sorted by span, known_us.

    from_us and to_us are the activity so far, rested_us the end of the activity before it.
    """
    activity = activity.sort("span", "from_us", "to_us").with_columns(
        before=pl.col("to_us").cum_max().shift(1).over("span")
    )
    fresh = pl.col("before").is_null() | (pl.col("from_us") - pl.col("before") >= least_us)
    activity = activity.with_columns(island=fresh.cast(pl.Int64).cum_sum().over("span"))
    activity = activity.with_columns(
        pl.col("from_us").min().over("span", "island").alias("from_us"),
        rested_us=pl.col("before").first().over("span", "island"),
    )
    activity = activity.sort("span", "island", "known_us", "to_us").with_columns(
        pl.col("to_us").cum_max().over("span", "island")
    )
    return activity.sort("span", "known_us", "to_us").select(
        "span", "island", "known_us", "from_us", "to_us", "rested_us"
    )
