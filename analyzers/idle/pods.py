"""Read what was known of each stretch's pods, hosts and notebook servers at each time."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import polars as pl

from analyzers.holds import PodMarks, find_holds
from analyzers.idle import flags
from analyzers.idle.rows import StretchPod, read_inventory
from analyzers.idle.signals import AFTER_US, HOST_US, compute_most_cores
from analyzers.idle.spans import WORKLOAD
from analyzers.protections import read_vetoes
from analyzers.queries import compose_steps, load_sql
from fallow.protocols import Views
from fallow.quiescence import BYTES_S, IO_PRESSURE
from fallow.settings.idle import IdleSettings
from fallow.window import Window
from warehouse.disruption_budgets import BudgetHistory
from warehouse.past_values import PastValues
from warehouse.signals.runs import MICRO, Ints
from warehouse.steps import NOTEBOOK_ACTIVITY, SERVING_LOAD, load_step
from warehouse.workload_gpus import build_records, read_workload_gpus

HOST = (
    "cpu", "cpu_n", "net", "net_n", "fs", "fs_n", "io", "io_n", "served_n", "requests_n",
)  # fmt: skip
SERVER = ("servers_n", "busy_n", "kernel_n")
LATEST = ("served_us", "held_us", "unknown_load_us")
LOAD = ("waiting", "running", "swapped")
HOST_ROWS = compose_steps("idle/part", SERVING_LOAD, "idle/hosts")
SERVER_ROWS = compose_steps("idle/part", NOTEBOOK_ACTIVITY, "idle/notebooks")
NAMES = ("cluster", "namespace", "pod", "pod_uid")
SERVER_LATEST = (
    "busy_us", "unknown_activity_us", "last_kernel_us", "last_terminal_us", "ahead_us",
)  # fmt: skip


def number_pods(holds: pl.DataFrame) -> pl.DataFrame:
    """Return the pods of each stretch: pod_number, span, hold_start, hold_end, weight, names.

    The weight of a pod is its number of devices.
    """
    pods = holds.group_by("span", *NAMES, maintain_order=True).agg(
        hold_start=pl.col("start").min(), hold_end=pl.col("end").max(), weight=pl.len()
    )
    return pods.with_row_index("pod_number").with_columns(pl.col("pod_number").cast(pl.Int64))


def join_pods(rows: pl.DataFrame, numbered: pl.DataFrame, *, single: bool) -> pl.DataFrame:
    """Return the pods of each row: row, k, pod_number, begin, finish, weight.

    A pod's readings are summed from `begin` on. With a `single` time that is at most the last day;
    for several times `_sum_over_pods` selects the day.
    """
    pods = numbered.select("span", "pod_number", "hold_start", "hold_end", "weight")
    both = rows.select("row", "span", "k", "start", "end", "at").join(pods, on="span")
    both = both.filter(
        (pl.col("hold_start") < pl.col("end")) & (pl.col("hold_end") > pl.col("start"))
    )
    # A part that still lasts ends a sample or two before its time.
    until = pl.when(pl.col("at") - pl.col("end") <= AFTER_US).then("at").otherwise("end")
    last_day = until - HOST_US
    return both.select(
        "row",
        "k",
        "pod_number",
        "weight",
        begin=pl.max_horizontal("start", "hold_start", *([last_day] if single else [])),
        finish=pl.min_horizontal("end", "hold_end"),
    )


def find_unready(
    views: Views, window: Window, pods: pl.DataFrame, places: pl.DataFrame, times: Ints
) -> pl.DataFrame:
    """Return the rows with a node that was not ready by its last event or observation: row.

    `places` are pod_number, cluster, node.
    """
    events = pl.DataFrame(
        views.query(load_step("inventory/ready"), {"until": window.bounds()["until"]})
    )
    node_rows = pods.select("row", "k", "pod_number").join(
        places.join(events.select("cluster", "node").unique(), on=["cluster", "node"]),
        on="pod_number",
    )
    if node_rows.is_empty():
        return node_rows.select("row")
    node_rows = node_rows.with_columns(at=pl.Series(times)[node_rows["k"]]).sort("at")
    last_events = node_rows.join_asof(
        events.rename({"at_us": "at"}).sort("at"),
        on="at",
        by=["cluster", "node"],
        allow_exact_matches=False,
        check_sortedness=False,
    )
    return last_events.filter(pl.col("ready").not_()).select("row").unique()


class PodReadings(msgspec.Struct, frozen=True):
    """What hosts and notebooks had reported of pods (`hosts.sql`, `notebooks.sql`).

    members: member, pod_number, begin. A member is a pod in the rows that begin at the same time:
    its readings are summed from then on.
    """

    members: pl.DataFrame
    host: pl.DataFrame
    book: pl.DataFrame


def read_readings(
    views: Views, window: Window, parts: Iterable[pl.DataFrame], numbered: pl.DataFrame, times: Ints
) -> PodReadings:
    """Read what hosts and notebooks reported of the pods of all rows, which come in parts.

    Each query reads the samples of the whole window, however few the pods are.
    """
    members = pl.concat(
        [
            join_pods(part.with_row_index("row"), numbered, single=len(times) == 1)
            .group_by("pod_number", "begin", maintain_order=True)
            .agg(end=pl.col("finish").max())
            for part in parts
        ]
    )
    members = members.with_row_index("member").with_columns(pl.col("member").cast(pl.Int64))
    names = numbered.select("pod_number", "cluster", "namespace", "pod")
    named = members.join(names, on="pod_number").select(
        "member", "cluster", "namespace", "pod", "end", start="begin"
    )
    first = int(times[0])
    step_us = int(times[1] - first) if len(times) > 1 else 1
    parameters = {
        **window.bounds(),
        "parts": named.sort("member").write_json(),
        "first": first,
        "step": step_us,
        # The state a day before the first times.
        "lead": -(-HOST_US // step_us) if len(times) > 1 else 0,
    }
    return PodReadings(
        members.drop("end"),
        pl.DataFrame(views.query(HOST_ROWS, parameters)),
        pl.DataFrame(views.query(SERVER_ROWS, parameters)),
    )


def sum_readings(
    readings: PodReadings, pods: pl.DataFrame, times: Ints, cores: pl.DataFrame
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return what hosts and notebooks had reported per row: sums over its pods, and the latest.

    `cores`: pod_number, cores (up to which the host is quiescent). `active` is true where any pod's
    mean of CPU, network, files or I/O pressure is above that of a quiescent host.
    """
    first = int(times[0])
    step_us = int(times[1] - first) if len(times) > 1 else 1
    seen = pods.join(cores, on="pod_number").join(readings.members, on=["pod_number", "begin"])
    seen = seen.select("row", "k", "member", "weight", "cores")
    # With a single time the day begins with the parts: nothing is subtracted.
    day_before = (times - HOST_US - first) // step_us if len(times) > 1 else times * 0 - 1
    seen = seen.with_columns(before=pl.Series(day_before)[seen["k"]]).sort("k")
    host, book = (
        frame.join(seen.select(pl.col("member").unique()), on="member", how="semi")
        for frame in (readings.host, readings.book)
    )
    return (
        _sum_over_pods(
            seen,
            host,
            HOST,
            LATEST,
            {"pods_cpu": "cpu_n", "pods_net": "net_n", "pods_requests": "requests_n"},
        ),
        _sum_over_pods(seen, book, SERVER, SERVER_LATEST, {"pods": "servers_n"}),
    )


def _sum_over_pods(
    seen: pl.DataFrame, readings: pl.DataFrame, sums: tuple[str, ...], latest: tuple[str, ...],
    pods: Mapping[str, str],
) -> pl.DataFrame:  # fmt: skip
    """Sum the readings of the day up to each row's time over its pods, and the latest of all.

    Of a server's load the last reading of each pod is summed. Rows without readings are absent.
    """
    last = LOAD if sums == HOST else ()
    grown = readings.with_columns(
        pl.col("member", "k").cast(pl.Int64),
        *(pl.col(name).cast(pl.Float64).fill_null(0.0) for name in sums),
        *(pl.col(name).cast(pl.Int64) for name in latest),
        *(pl.col(name).cast(pl.Float64) for name in last),
    ).sort("member", "k")
    grown = grown.with_columns(
        *(pl.col(name).cum_sum().over("member") for name in sums),
        *(pl.col(name).cum_max().forward_fill().over("member") for name in latest),
        *(pl.col(name).forward_fill().over("member") for name in last),
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
        net, files, pressure = (pl.col(n) / pl.col(f"{n}_n") for n in ("net", "fs", "io"))
        over = (
            ((pl.col("cpu") / pl.col("cpu_n")).fill_nan(0.0) > pl.col("cores") + 1e-6)
            | (net.fill_nan(0.0) >= BYTES_S)
            | (files.fill_nan(0.0) >= BYTES_S)
            | (pressure.fill_nan(0.0) >= IO_PRESSURE)
        )
        extra = [over.fill_null(False).any().alias("active")]
    return both.group_by("row").agg(
        *extra,
        *((pl.col(name) * pl.col("weight")).sum() for name in sums),
        *(pl.col(name).max() for name in latest),
        *(pl.col(name).sum() for name in last),
        *((pl.col(name) > 0).sum().cast(pl.Int64).alias(alias) for alias, name in pods.items()),
    )


POD_SIGNALS = {
    "pod_key": pl.Int64, "cluster": pl.String, "node": pl.String, "started_us": pl.Int64,
    "pending": pl.Boolean, "unresolved": pl.Boolean, "hard": pl.Boolean, "soft": pl.Boolean,
    "cores": pl.Float64,
}  # fmt: skip
"""The inventory's data of a pod, in the columns that signals need."""
_VETOES = ("hard", "soft")
_EVER = -(2**62)


def add_signals(  # noqa: PLR0917  (one caller)
    views: Views, window: Window, rows: pl.DataFrame, named: pl.DataFrame, readings: PodReadings,
    at: Ints, settings: IdleSettings,
) -> pl.DataFrame:  # fmt: skip
    """Add a column per signal and veto to each row: see `flags.add_flags`.

    `named`: the pods of their stretches, of `number_pods`.
    """
    pods = join_pods(rows, named, single=len(at) == 1)
    stored = read_inventory(views, named["pod_uid"].unique().to_list())
    # A uid is one of its cluster: a restored cluster's pods may have those of another.
    keys = named.select("cluster", "pod_uid").unique(maintain_order=True)
    inventory = {n: stored[key] for n, key in enumerate(keys.iter_rows()) if key in stored}
    facts = pl.DataFrame(
        [_describe_pod(n, inventory.get(n), settings) for n in range(keys.height)],
        schema=POD_SIGNALS,
        orient="row",
    )
    numbered = named.join(
        keys.with_row_index("pod_key").with_columns(pl.col("pod_key").cast(pl.Int64)),
        on=["cluster", "pod_uid"],
        maintain_order="left",
    )
    facts = numbered.select("pod_number", "pod_key").join(facts, on="pod_key")
    holds = list_holds(inventory, BudgetHistory(views, window.end))
    each = pods.select("row", "k", "pod_number").join(facts, on="pod_number")
    each = add_past_vetoes(each, PastValues(views), inventory, at)
    summed = each.group_by("row").agg(
        pod_count=pl.len().cast(pl.Int64),
        started_us=pl.col("started_us").max(),
        pending=pl.col("pending").all(),
        unresolved=pl.col("unresolved").any(),
        hard=pl.col("hard").any(),
        soft=pl.col("soft").any(),
    )
    host, servers = sum_readings(readings, pods, at, facts.select("pod_number", "cores"))
    places = facts.select("pod_number", "cluster", "node")
    away = find_unready(views, window, pods, places, at)
    rows = add_peers(views, window, rows, settings)
    rows = add_inventory(views, rows)
    times = pl.Series("at_us", at)
    of_row = (
        each.with_columns(at_us=times.gather(each["k"]))
        .join(holds, on="pod_key")
        .filter((pl.col("at_us") >= pl.col("from_us")) & (pl.col("at_us") < pl.col("to_us")))
        .unique(["row", "holds"], maintain_order=True)
    )
    of_row = of_row.group_by("row", maintain_order=True).agg("holds")
    rows = rows.join(of_row, on="row", how="left")
    return flags.add_flags(rows, settings, pods=summed, host=host, book=servers, unready=away)


def add_past_vetoes(
    each: pl.DataFrame, past: PastValues, inventory: Mapping[int, StretchPod], at: Ints
) -> pl.DataFrame:
    """Replace `hard` and `soft` by what annotations and labels forbade at the times of the rows."""
    vetoes = pl.DataFrame(
        [
            (
                key,
                from_us if number else _EVER,
                *read_vetoes(
                    values.get("annotations", pod.annotations), values.get("labels", pod.labels)
                ),
            )
            for key, pod in inventory.items()
            for number, (from_us, values) in enumerate(past.list_changes((pod.cluster, pod.uid)))
        ],
        schema={"pod_key": pl.Int64, "at": pl.Int64, "hard": pl.Boolean, "soft": pl.Boolean},
        orient="row",
    ).sort("at")
    then = each.with_columns(at=pl.Series(at)[each["k"]]).sort("at")
    then = then.join_asof(
        vetoes, on="at", by="pod_key", suffix="_then", allow_exact_matches=False,
        check_sortedness=False,
    )  # fmt: skip
    return then.with_columns(pl.coalesce(f"{name}_then", name).alias(name) for name in _VETOES)


def add_peers(
    views: Views, window: Window, rows: pl.DataFrame, settings: IdleSettings
) -> pl.DataFrame:
    """Add `waiting_peer`: a pod of the row's workload was pending, or just started, at its time."""
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
    waiting = both.filter(waits.fill_null(False) | starts.fill_null(False))["row"].unique()
    return rows.with_columns(waiting_peer=pl.col("row").is_in(waiting.implode()))


def add_inventory(views: Views, rows: pl.DataFrame) -> pl.DataFrame:
    """Lower `coverage` by the share of the workload's GPUs without a device in evidence.

    Adds `gap`: a text about the replicas without telemetry; null = all have telemetry.
    """
    stretches = rows.select("row", *WORKLOAD, "start", "end").rename({"row": "span"})
    covered = read_workload_gpus(views, stretches)
    # Few rows have a text: the others need no record.
    unseen = build_records(covered.filter(pl.col("replicas_unseen") > 0)).values()
    gaps = pl.DataFrame(
        [(h.span, h.gap) for h in unseen],
        schema={"span": pl.Int64, "gap": pl.String},
        orient="row",
    )
    coverages = covered.join(gaps, on="span", how="left").select("gap", row="span", seen="coverage")
    both = rows.join(coverages, on="row", how="left")
    whole = pl.col("state") == "idle"
    return both.with_columns(
        coverage=pl.when(whole)
        .then(pl.min_horizontal("coverage", "seen"))
        .otherwise(pl.col("coverage")),
    ).drop("seen")


HOLDS = pl.List(pl.Struct({"why": pl.String, "name": pl.String}))


def list_holds(inventory: Mapping[int, StretchPod], budgets: BudgetHistory) -> pl.DataFrame:
    """Return what holds each pod from when to when: pod_key, from_us, to_us, holds."""
    return pl.DataFrame(
        [
            (key, from_us, to_us, msgspec.to_builtins(hold))
            for key, pod in inventory.items()
            for from_us, to_us, there in budgets.list_states(pod.cluster, pod.namespace)
            for hold in find_holds(
                PodMarks(pod.cluster, pod.namespace, pod.labels, pod.containers), there
            )
        ],
        schema={
            "pod_key": pl.Int64,
            "from_us": pl.Int64,
            "to_us": pl.Int64,
            "holds": HOLDS.inner,
        },
        orient="row",
    )


def _describe_pod(key: int, pod: StretchPod | None, settings: IdleSettings) -> tuple[Any, ...]:
    """Return the values of `POD_SIGNALS`; None = the inventory does not have the pod."""
    if pod is None:
        cores = compute_most_cores(None, settings)
        return key, None, None, None, False, True, False, False, cores
    hard, soft = read_vetoes(pod.annotations, pod.labels)
    return (
        key,
        pod.cluster,
        pod.node,
        pod.started_us,
        pod.phase == "Pending",
        pod.workload_kind is None,
        hard,
        soft,
        compute_most_cores(pod.cpu_request_milli, settings),
    )
