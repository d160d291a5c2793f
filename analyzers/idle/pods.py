"""What pods, hosts and notebook servers had shown of each stretch by each time."""

from collections.abc import Mapping
from typing import Any

import polars as pl

from analyzers.idle import flags
from analyzers.idle.signals import AFTER_US, BYTES_S, HOST_US, compute_most_cores, read_protections
from analyzers.idle.spans import WORKLOAD
from analyzers.queries import compose_steps, load_sql
from fallow.protocols import Views
from fallow.settings import IdleSettings
from fallow.window import Window
from warehouse.signals.runs import MICRO, Ints
from warehouse.steps import load_step
from warehouse.workload_gpus import WorkloadStretch, build_records, read_workload_gpus

HOST = ("cpu", "cpu_n", "net", "net_n", "fs", "fs_n", "served_n", "requests_n")
SERVER = ("said_n", "busy_n", "kernel_n")
LATEST = ("served_us",)
NAMES = ("cluster", "namespace", "pod", "pod_uid")
SERVER_LATEST = ("busy_us", "last_kernel_us", "last_terminal_us", "ahead_us")


def number_pods(held: pl.DataFrame) -> pl.DataFrame:
    """Return the pods of each stretch by number: held, span, hold_start, hold_end, weight, names.

    A pod weighs as many devices as it holds.
    """
    found = held.group_by("span", *NAMES, maintain_order=True).agg(
        hold_start=pl.col("start").min(), hold_end=pl.col("end").max(), weight=pl.len()
    )
    return found.with_row_index("held").with_columns(pl.col("held").cast(pl.Int64))


def join_pods(rows: pl.DataFrame, numbered: pl.DataFrame, *, single: bool) -> pl.DataFrame:
    """Return the pods of each row: row, k, held, begin, finish, weight, member.

    `member` numbers a pod in a part of a stretch: what it said is summed from `begin` on. With a
    `single` time that is the last day at most; of several times `_summed` takes the day.
    """
    pods = numbered.select("span", "held", "hold_start", "hold_end", "weight")
    both = rows.select("row", "span", "k", "start", "end", "at").join(pods, on="span")
    both = both.filter(
        (pl.col("hold_start") < pl.col("end")) & (pl.col("hold_end") > pl.col("start"))
    )
    # A part that lasts ends a sample or two before its time.
    until = pl.when(pl.col("at") - pl.col("end") <= AFTER_US).then("at").otherwise("end")
    last_day = until - HOST_US
    both = both.select(
        "row",
        "k",
        "held",
        "weight",
        begin=pl.max_horizontal("start", "hold_start", *([last_day] if single else [])),
        finish=pl.min_horizontal("end", "hold_end"),
    )
    members = both.select("held", "begin").unique(maintain_order=True).with_row_index("member")
    return both.join(members.with_columns(pl.col("member").cast(pl.Int64)), on=["held", "begin"])


def read_inventory(views: Views, uids: list[str]) -> dict[str, dict[str, Any]]:
    """Return what the inventory knows of pods, by uid, with the annotations' protections."""
    found = views.query(load_sql("idle/pods"), {"uids": sorted(uids)}).to_pylist()
    for pod in found:
        pod["hard"], pod["soft"] = read_protections([pod])
    return {pod["uid"]: pod for pod in found}


def find_unready(
    views: Views, window: Window, pods: pl.DataFrame, places: pl.DataFrame, moments: Ints
) -> pl.DataFrame:
    """Return the rows of which a node was not ready, as far as events tell: row.

    `places` are held, cluster, node.
    """
    events = pl.DataFrame(
        views.query(load_step("inventory/ready"), {"until": window.bounds()["until"]})
    )
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


def read_hosts(  # noqa: PLR0917  (one caller)
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
    first = int(moments[0])
    step_us = int(moments[1] - first) if len(moments) > 1 else 1
    asked = {
        **window.bounds(),
        "parts": parts.sort("member").drop("held").write_json(),
        "first": first,
        "step": step_us,
        # What was known a day before the first times.
        "lead": -(-HOST_US // step_us) if len(moments) > 1 else 0,
    }
    host = pl.DataFrame(views.query(compose_steps("idle/part", "idle/hosts"), asked))
    book = pl.DataFrame(views.query(compose_steps("idle/part", "idle/notebooks"), asked))
    seen = pods.join(cores, on="held").select("row", "k", "member", "weight", "cores")
    # With a single time the day begins where its parts do: nothing is taken off again.
    day_before = (moments - HOST_US - first) // step_us if len(moments) > 1 else moments * 0 - 1
    seen = seen.with_columns(before=pl.Series(day_before)[seen["k"]]).sort("k")
    return (
        _sum_over_pods(
            seen, host, HOST, LATEST, {"pods_cpu": "cpu_n", "pods_requests": "requests_n"}
        ),
        _sum_over_pods(seen, book, SERVER, SERVER_LATEST, {"pods": "said_n"}),
    )


def _sum_over_pods(
    seen: pl.DataFrame, found: pl.DataFrame, sums: tuple[str, ...], latest: tuple[str, ...],
    pods: Mapping[str, str],
) -> pl.DataFrame:  # fmt: skip
    """Sum what was said in the day up to each row's time over its pods, and the latest of all.

    Rows nobody spoke of are absent.
    """
    grown = found.with_columns(
        pl.col("member", "k").cast(pl.Int64),
        *(pl.col(name).cast(pl.Float64).fill_null(0.0) for name in sums),
        *(pl.col(name).cast(pl.Int64) for name in latest),
    ).sort("member", "k")
    grown = grown.with_columns(
        *(pl.col(name).cum_sum().over("member") for name in sums),
        *(pl.col(name).cum_max().forward_fill().over("member") for name in latest),
    )
    grown = grown.sort("k")
    both = seen.join_asof(grown, on="k", by="member", check_sortedness=False)
    both = both.drop_nulls(sums[0]).sort("before")
    earlier = grown.select(
        "member", pl.col("k").alias("before"), *(pl.col(n).alias(f"{n}_before") for n in sums)
    )
    both = both.join_asof(earlier, on="before", by="member", check_sortedness=False)
    both = both.with_columns(pl.col(n) - pl.col(f"{n}_before").fill_null(0.0) for n in sums)
    extra = []
    if sums == HOST:
        net, files = (pl.col(n) / pl.col(f"{n}_n") for n in ("net", "fs"))
        over = (
            ((pl.col("cpu") / pl.col("cpu_n")).fill_nan(0.0) > pl.col("cores") + 1e-6)
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


POD_SIGNALS = {
    "pod_uid": pl.String, "cluster": pl.String, "node": pl.String, "started_us": pl.Int64,
    "pending": pl.Boolean, "unresolved": pl.Boolean, "hard": pl.Boolean, "soft": pl.Boolean,
    "cores": pl.Float64,
}  # fmt: skip
"""What the inventory knows of a pod, in the columns that signals need."""


def add_signals(  # noqa: PLR0917  (one caller)
    views: Views, window: Window, rows: pl.DataFrame, held: pl.DataFrame, at: Ints,
    settings: IdleSettings,
) -> pl.DataFrame:  # fmt: skip
    """Add a column per signal and veto to each row: see `flags.add_flags`."""
    named = number_pods(held)
    pods = join_pods(rows, named, single=len(at) == 1)
    known = read_inventory(views, named["pod_uid"].unique().to_list())
    facts = pl.DataFrame(
        [
            _describe_pod(uid, known.get(uid), settings)
            for uid in named["pod_uid"].unique(maintain_order=True)
        ],
        schema=POD_SIGNALS,
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
    host, servers = read_hosts(views, window, pods, named, at, facts.select("held", "cores"))
    places = facts.select("held", "cluster", "node")
    away = find_unready(views, window, pods, places, at)
    rows = add_peers(views, window, rows, settings)
    rows = add_inventory(views, rows)
    return flags.add_flags(rows, settings, pods=summed, host=host, book=servers, unready=away)


def add_peers(
    views: Views, window: Window, rows: pl.DataFrame, settings: IdleSettings
) -> pl.DataFrame:
    """Add `waiting_peer`: a pod of the row's workload waited, or had just started, at its time."""
    owners = rows.select("owner", *WORKLOAD).unique("owner")
    peers = pl.DataFrame(
        views.query(
            load_sql("idle/peers"),
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


def add_inventory(views: Views, rows: pl.DataFrame) -> pl.DataFrame:
    """Lower `coverage` by what the workload holds and no device in evidence covers.

    Adds `gap`: in words which replicas have no telemetry; null = all have.
    """
    asked = [
        WorkloadStretch(
            row["row"], row["cluster"], row["namespace"], row["workload_kind"], row["workload"],
            row["start"], row["end"],
        )
        for row in rows.select("row", *WORKLOAD, "start", "end").iter_rows(named=True)
    ]  # fmt: skip
    held = build_records(read_workload_gpus(views, asked)).values()
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


def _describe_pod(uid: str, pod: dict[str, Any] | None, settings: IdleSettings) -> dict[str, Any]:
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
        "cores": compute_most_cores(found.get("cpu_request_milli"), settings),
    }
