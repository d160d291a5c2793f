"""What pods, hosts and notebook servers had shown of each stretch by each time."""

from collections.abc import Mapping
from typing import Any

import polars as pl

from analyzers.idle import flags
from analyzers.idle.signals import BYTES_S, most_cores, protections
from analyzers.idle.spans import WORKLOAD
from analyzers.queries import sql, steps
from fallow.seams import Views
from fallow.settings import IdleSettings
from fallow.window import Window
from warehouse.signals.runs import MICRO, Ints
from warehouse.steps import step
from warehouse.workload_gpus import Stretch, records, workload_gpus

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
    found = views.query(sql("idle/pods"), {"uids": sorted(uids)}).to_pylist()
    for pod in found:
        pod["hard"], pod["soft"] = protections([pod])
    return {pod["uid"]: pod for pod in found}


def unready(
    views: Views, window: Window, pods: pl.DataFrame, places: pl.DataFrame, moments: Ints
) -> pl.DataFrame:
    """Return the rows of which a node was not ready, as far as events tell: row.

    `places` are held, cluster, node.
    """
    events = pl.DataFrame(views.query(step("inventory/ready"), {"until": window.bounds()["until"]}))
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


def hosts(  # noqa: PLR0917  (one caller)
    views: Views, window: Window, pods: pl.DataFrame, numbered: pl.DataFrame, moments: Ints,
    cores: pl.DataFrame,
) -> tuple[pl.DataFrame, pl.DataFrame]:  # fmt: skip
    """Return what hosts and notebooks had shown per row: sums over its pods, and the latest.

    `cores`: held, cores (up to which the pod is at rest). `active` says whether any pod's mean of
    CPU, network or file writes is above what a pod at rest shows.
    """
    parts = pods.group_by("member", "held").agg(
        start=pl.col("begin").first(), end=pl.col("finish").max()
    )
    parts = parts.join(numbered.select("held", "cluster", "namespace", "pod"), on="held")
    asked = {
        **window.bounds(),
        "parts": parts.sort("member").drop("held").write_json(),
        "first": int(moments[0]),
        "step": int(moments[1] - moments[0]) if len(moments) > 1 else 1,
    }
    host = pl.DataFrame(views.query(steps("idle/part", "idle/hosts"), asked))
    book = pl.DataFrame(views.query(steps("idle/part", "idle/notebooks"), asked))
    seen = pods.join(cores, on="held").select("row", "k", "member", "weight", "cores").sort("k")
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
    extra = []
    if sums == HOST:
        net, files = (pl.col(n) / pl.col(f"{n}_n") for n in ("net", "fs"))
        over = (
            (pl.col("cpu") / pl.col("cpu_n") > pl.col("cores") + 1e-6)
            | (net.fill_nan(0.0) >= BYTES_S)
            | (files.fill_nan(0.0) >= BYTES_S)
        )
        extra = [over.fill_null(False).any().alias("active")]
    return both.group_by("row").agg(
        *extra,
        *((pl.col(name) * pl.col("weight")).sum() for name in sums),
        *(pl.col(name).max() for name in latest),
        *((pl.col(name) > 0).sum().cast(pl.Int64).alias(alias) for alias, name in pods.items()),
    )


POD = {
    "pod_uid": pl.String, "cluster": pl.String, "node": pl.String, "started_us": pl.Int64,
    "pending": pl.Boolean, "unresolved": pl.Boolean, "hard": pl.Boolean, "soft": pl.Boolean,
    "cores": pl.Float64,
}  # fmt: skip
"""What the inventory knows of a pod, in the columns that signals need."""


def with_signals(  # noqa: PLR0917  (one caller)
    views: Views, window: Window, rows: pl.DataFrame, held: pl.DataFrame, at: Ints,
    settings: IdleSettings,
) -> pl.DataFrame:  # fmt: skip
    """Add a column per signal and veto to each row: see `flags.flags`."""
    named = numbered(held)
    pods = pods_of(rows, named)
    known = inventory(views, named["pod_uid"].unique().to_list())
    facts = pl.DataFrame(
        [
            _pod(uid, known.get(uid), settings)
            for uid in named["pod_uid"].unique(maintain_order=True)
        ],
        schema=POD,
        infer_schema_length=None,
    )
    facts = named.select("held", "pod_uid").join(facts, on="pod_uid")
    each = pods.select("row", "held").join(facts, on="held")
    summed = each.group_by("row").agg(
        known=pl.len().cast(pl.Int64),
        started_us=pl.col("started_us").max(),
        pending=pl.col("pending").all(),
        unresolved=pl.col("unresolved").any(),
        hard=pl.col("hard").any(),
        soft=pl.col("soft").any(),
    )
    host, servers = hosts(views, window, pods, named, at, facts.select("held", "cores"))
    places = facts.select("held", "cluster", "node")
    away = unready(views, window, pods, places, at)
    rows = with_peers(views, window, rows, settings)
    rows = with_inventory(views, rows)
    return flags.flags(rows, settings, pods=summed, host=host, book=servers, unready=away)


def with_peers(
    views: Views, window: Window, rows: pl.DataFrame, settings: IdleSettings
) -> pl.DataFrame:
    """Add `waiting_peer`: a pod of the row's workload waited, or had just started, at its time."""
    owners = rows.select("owner", *WORKLOAD).unique("owner")
    peers = pl.DataFrame(
        views.query(
            sql("idle/peers"),
            {"workloads": owners.write_json(), "until": window.bounds()["until"]},
        )
    )
    grace = round(settings.startup_grace.total_seconds() * MICRO)
    both = rows.select("row", "owner", "at").join(
        peers.with_columns(pl.col("owner").cast(pl.Int64)), on="owner"
    )
    waits = (pl.col("created_us") < pl.col("at")) & (pl.col("waited_until_us") >= pl.col("at"))
    starts = (pl.col("started_us") < pl.col("at")) & (pl.col("at") - pl.col("started_us") < grace)
    found = both.filter(waits.fill_null(False) | starts.fill_null(False))["row"].unique()
    return rows.with_columns(waiting_peer=pl.col("row").is_in(found.implode()))


def with_inventory(views: Views, rows: pl.DataFrame) -> pl.DataFrame:
    """Lower `coverage` by what the workload holds and no device in evidence covers.

    Adds `gap`: in words which replicas have no telemetry; null = all have.
    """
    asked = [
        Stretch(
            row["row"], row["cluster"], row["namespace"], row["workload_kind"], row["workload"],
            row["start"], row["end"],
        )
        for row in rows.select("row", *WORKLOAD, "start", "end").iter_rows(named=True)
    ]  # fmt: skip
    held = records(workload_gpus(views, asked)).values()
    found = pl.DataFrame(
        [(h.span, h.coverage, h.gap) for h in held],
        schema={"row": pl.Int64, "seen": pl.Float64, "gap": pl.String},
        orient="row",
    )
    both = rows.join(found, on="row", how="left")
    whole = pl.col("state") == "idle"
    return both.with_columns(
        coverage=pl.when(whole)
        .then(pl.min_horizontal("coverage", "seen"))
        .otherwise(pl.col("coverage")),
    ).drop("seen")


def _pod(uid: str, pod: dict[str, Any] | None, settings: IdleSettings) -> dict[str, Any]:
    found = pod or {}
    return {
        "pod_uid": uid,
        "cluster": found.get("cluster"),
        "node": found.get("node"),
        "started_us": found.get("started_us"),
        "pending": found.get("phase") == "Pending",
        "unresolved": found.get("workload_kind") is None,
        "hard": bool(found.get("hard")),
        "soft": bool(found.get("soft")),
        "cores": most_cores(found.get("cpu_request_milli"), settings),
    }
