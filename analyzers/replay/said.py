"""What pods, hosts and notebooks had said of each stretch by each moment."""

from collections.abc import Mapping
from typing import Any

import polars as pl

from analyzers.looks import bounds
from analyzers.queries import sql, steps
from analyzers.runs import Ints
from analyzers.witnesses import protections
from fallow.seams import Views
from fallow.window import Window
from warehouse.steps import step

HOST = ("cpu", "cpu_n", "net", "net_n", "fs", "fs_n", "served_n", "requests_n")
BOOK = ("said_n", "busy_n", "kernel_n")
LATEST = ("served_us",)
NAMES = ("cluster", "namespace", "pod", "pod_uid")
BOOK_LATEST = ("busy_us", "last_kernel_us", "last_terminal_us", "ahead_us")


def numbered(held: pl.DataFrame) -> pl.DataFrame:
    """Return the pods of each stretch by number: held, span, hold_start, hold_end, weight, names.

    A pod weighs as many devices as it holds.
    """
    found = held.group_by("span", *NAMES, maintain_order=True).agg(
        hold_start=pl.col("start").min(), hold_end=pl.col("end").max(), weight=pl.len()
    )
    return found.with_row_index("held").with_columns(pl.col("held").cast(pl.Int64))


def pods_of(rows: pl.DataFrame, numbered: pl.DataFrame) -> pl.DataFrame:
    """Return the pods of each row: row, k, held, begin, finish, weight, member.

    `member` numbers a pod in a part of a stretch: what it said is summed from `begin` on.
    """
    pods = numbered.select("span", "held", "hold_start", "hold_end", "weight")
    both = rows.select("row", "span", "k", "start", "end").join(pods, on="span")
    both = both.filter(
        (pl.col("hold_start") < pl.col("end")) & (pl.col("hold_end") > pl.col("start"))
    )
    both = both.select(
        "row",
        "k",
        "held",
        "weight",
        begin=pl.max_horizontal("start", "hold_start"),
        finish=pl.min_horizontal("end", "hold_end"),
    )
    members = both.select("held", "begin").unique(maintain_order=True).with_row_index("member")
    return both.join(members.with_columns(pl.col("member").cast(pl.Int64)), on=["held", "begin"])


def inventory(views: Views, uids: list[str]) -> dict[str, dict[str, Any]]:
    """Return what the inventory knows of pods, by uid, with the annotations' protections."""
    found = views.query(sql("idle_pods"), {"uids": sorted(uids)}).to_pylist()
    for pod in found:
        pod["hard"], pod["soft"] = protections([pod])
    return {pod["uid"]: pod for pod in found}


def unready(
    views: Views, window: Window, pods: pl.DataFrame, places: pl.DataFrame, moments: Ints
) -> pl.DataFrame:
    """Return the rows of which a node was not ready, as far as events tell: row.

    `places` are held, cluster, node.
    """
    events = pl.DataFrame(views.query(step("inventory/ready"), {"until": bounds(window)["until"]}))
    asked = pods.select("row", "k", "held").join(
        places.join(events.select("cluster", "node").unique(), on=["cluster", "node"]), on="held"
    )
    if asked.is_empty():
        return asked.select("row")
    asked = asked.with_columns(at=pl.Series(moments)[asked["k"]]).sort("at")
    said = asked.join_asof(
        events.rename({"at_us": "at"}).sort("at"),
        on="at",
        by=["cluster", "node"],
        allow_exact_matches=False,
        check_sortedness=False,
    )
    return said.filter(pl.col("ready").not_()).select("row").unique()


def hosts(
    views: Views, window: Window, pods: pl.DataFrame, numbered: pl.DataFrame, moments: Ints
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return what hosts and notebooks had said per row: sums over its pods, and the latest."""
    parts = pods.group_by("member", "held").agg(
        start=pl.col("begin").first(), end=pl.col("finish").max()
    )
    parts = parts.join(numbered.select("held", "cluster", "namespace", "pod"), on="held")
    asked = {
        **bounds(window),
        "parts": parts.sort("member").drop("held").write_json(),
        "first": int(moments[0]),
        "step": int(moments[1] - moments[0]) if len(moments) > 1 else 1,
    }
    host = pl.DataFrame(views.query(steps("replay/part", "replay/hosts"), asked))
    book = pl.DataFrame(views.query(steps("replay/part", "replay/notebooks"), asked))
    seen = pods.select("row", "k", "member", "weight").sort("k")
    return (
        _summed(seen, host, HOST, LATEST, {"pods_cpu": "cpu_n", "pods_requests": "requests_n"}),
        _summed(seen, book, BOOK, BOOK_LATEST, {"pods": "said_n"}),
    )


def _summed(
    seen: pl.DataFrame, found: pl.DataFrame, sums: tuple[str, ...], latest: tuple[str, ...],
    pods: Mapping[str, str],
) -> pl.DataFrame:  # fmt: skip
    """Sum what was said up to each row's moment over its pods; rows nobody spoke of are absent."""
    grown = found.with_columns(
        pl.col("member", "k").cast(pl.Int64),
        *(pl.col(name).cast(pl.Float64).fill_null(0.0) for name in sums),
        *(pl.col(name).cast(pl.Int64) for name in latest),
    ).sort("member", "k")
    grown = grown.with_columns(
        *(pl.col(name).cum_sum().over("member") for name in sums),
        *(pl.col(name).cum_max().forward_fill().over("member") for name in latest),
    )
    both = seen.join_asof(grown.sort("k"), on="k", by="member", check_sortedness=False)
    both = both.drop_nulls(sums[0])
    return both.group_by("row").agg(
        *((pl.col(name) * pl.col("weight")).sum() for name in sums),
        *(pl.col(name).max() for name in latest),
        *((pl.col(name) > 0).sum().cast(pl.Int64).alias(alias) for alias, name in pods.items()),
    )
