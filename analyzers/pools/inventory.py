"""Read a cluster's pools: nodes, pods, bill and prices, pool by pool."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import msgspec
import polars as pl

from analyzers.pending import (
    MeasureTimes,
    NodeTotals,
    Pending,
    keep_runnable,
    read_pending,
)
from analyzers.pools import catalogue
from analyzers.pools.catalogue import NodeOverhead, OfferTerms
from analyzers.pools.demand import add_shapes
from analyzers.pools.rows import PoolNode, TypeCost, TypePrice, read_prices
from analyzers.pools.shapes import PodShape, TypeOffer
from analyzers.queries import COVERED, LAST_SCRAPES, NODE_SHARES, compose_steps
from analyzers.rows import decode_frame
from fallow.gpu_models import find_gpu_model, get_model_name
from fallow.node_requirements import read_taints
from fallow.protocols import Views
from fallow.settings.capacity import PoolsSettings
from fallow.window import Window
from warehouse.steps import POD_OWNERS

MIB = 2**20
CLOUDS = ("aws", "gcp", "azure")
ARCH = "amd64"
"""Assumed where neither node nor catalogue has it, so that nothing moves to arm64 by accident."""
UNPRICED = 0.01
"""Maximum share of a pool's GPU-hours without a price for a usable bill."""
ANY = 2**40
"""Assumed capacity of nodes whose CPU or memory is unknown."""


class NodePoolUsage(msgspec.Struct, frozen=True):
    """One pool of one cluster in the window; `name` is the value that its nodes share."""

    cluster: str
    name: str
    named: bool
    """False = the nodes have no pool name, and are those of one instance type."""
    nodes: pl.DataFrame
    pods: pl.DataFrame
    bill: pl.DataFrame
    """Per node and model: gpu_hours, free_hours, unpriced_hours, committed_hours, usd, free_usd."""
    hours: float
    """Hours from the first to the last hour in the ledger."""
    overhead: NodeOverhead
    hosts_seen: bool
    """True: the cluster's inventory has pods without GPUs."""
    pending_gpus: float
    """GPUs that pods of the whole cluster wait for."""
    waiting: Pending = {}
    """The pods that wait for GPUs and may run on a node of the pool."""

    @property
    def first_node(self) -> PoolNode:
        """The first of its nodes by name: it stands for all where they differ."""
        return decode_frame(self.nodes.head(1), PoolNode)[0]

    @property
    def gpu_hours(self) -> float:
        """All GPU-hours of the pool."""
        return float(self.bill["gpu_hours"].sum())

    @property
    def free_hours(self) -> float:
        """GPU-hours that were not allocated."""
        return float(self.bill["free_hours"].sum())

    @property
    def usd(self) -> Decimal | None:
        """The pool's cost in the window; None where part of it has no price."""
        if self.bill["unpriced_hours"].sum() > UNPRICED * self.gpu_hours or not self.gpu_hours:
            return None
        return sum((u for u in self.bill["usd"] if u is not None), Decimal())

    @property
    def models(self) -> list[str]:
        """GPU models of its nodes."""
        return sorted({get_model_name(m) or m for m in self.nodes["gpu_model"].drop_nulls()})

    @property
    def types(self) -> list[str]:
        """Instance types of its nodes."""
        return sorted(self.nodes["type"].unique())


class PoolInventory(msgspec.Struct, frozen=True):
    """Every pool with GPUs, and the prices in force."""

    pools: tuple[NodePoolUsage, ...]
    prices: tuple[TypePrice, ...]


def read_pools(views: Views, window: Window, settings: PoolsSettings) -> PoolInventory:
    """Read the pools and prices of the window."""
    bounds = window.bounds()
    nodes = _read_frame(views, "gpu_nodes", bounds)
    if nodes.is_empty():
        return PoolInventory((), ())
    model = pl.coalesce("gpu_model", pl.lit("unknown model"))
    size = pl.format("{} x{}, {} m", model, "gpu_count", pl.col("cpu_milli").fill_null(0))
    nodes = nodes.with_columns(
        type=pl.coalesce("instance_type", size), key=pl.coalesce("pool", "instance_type", model)
    )
    types = {name: catalogue.find_type(name) for name in nodes["type"].unique()}
    arches = {name: row.arch if row else None for name, row in types.items()}
    type_arch = pl.col("type").replace_strict(arches, return_dtype=pl.String)
    nodes = nodes.with_columns(
        arch_known=pl.coalesce("arch", type_arch).is_not_null(),
        arch=pl.coalesce("arch", type_arch, pl.lit(ARCH)),
    )
    pods = add_shapes(_read_frame(views, "pod_lifetimes", bounds, LAST_SCRAPES, POD_OWNERS), nodes)
    bill = _read_frame(views, "node_bill", {**bounds, "region": ""}, *NODE_SHARES)
    accounted = {"since": window.whole().bounds()["since"], "until": bounds["until"]}
    sql = compose_steps(COVERED)
    covered = pl.DataFrame(views.query(sql, {**accounted, "cluster": None}))
    prices = read_prices(views, bounds["until"])
    clusters = nodes["cluster"].unique(maintain_order=True).to_list()
    waiting = read_pending(views, MeasureTimes.at(clusters, window.end))
    return PoolInventory(
        tuple(_build_pools(nodes, pods, bill, covered, waiting, settings=settings)), prices
    )


def _read_frame(
    views: Views, name: str, parameters: Mapping[str, Any], *before: str
) -> pl.DataFrame:
    frame = pl.from_arrow(views.query(compose_steps(*before, f"pools/{name}"), parameters))
    if not isinstance(frame, pl.DataFrame):  # pragma: no cover  (a table is a frame)
        raise TypeError(name)
    return frame


def _build_pools(
    nodes: pl.DataFrame,
    pods: pl.DataFrame,
    bill: pl.DataFrame,
    covered: pl.DataFrame,
    waiting: Mapping[tuple[str, int], Pending],
    *,
    settings: PoolsSettings,
) -> Iterator[NodePoolUsage]:
    where = ["cluster", "node"]
    of = nodes.select(*where, "key")
    placed = pods.drop("pool", strict=False).join(of, on=where).rename({"key": "pool"})
    billed = bill.drop("pool").join(of, on=where)
    for (cluster, name), members in sorted(
        nodes.group_by("cluster", "key"), key=lambda item: item[0]
    ):
        mine = placed.filter((pl.col("cluster") == cluster) & (pl.col("pool") == name))
        costs = billed.filter((pl.col("cluster") == cluster) & (pl.col("key") == name))
        costs = _price_unbilled(members, costs) if costs.is_empty() else costs
        every = pods.filter(pl.col("cluster") == cluster)
        yield NodePoolUsage(
            cluster=str(cluster),
            name=str(name),
            named=members["pool"].null_count() == 0,
            nodes=members.sort("node").with_columns(pool=pl.lit(name)),
            pods=mine,
            bill=costs,
            hours=_sum_hours(costs, covered),
            overhead=compute_overhead(mine, settings),
            hosts_seen=every.filter(pl.col("daemon") | (pl.col("gpu_request") <= 0)).height > 0,
            pending_gpus=_sum_pending(every),
            waiting=_select_waiting(waiting.get((str(cluster), 1), {}), members),
        )


def _select_waiting(pods: Pending, nodes: pl.DataFrame) -> Pending:
    """Return the pods that a node of a pool would accept.

    MIG requests wait for nodes with that layout.
    """
    whole, cut = list[NodeTotals](), list[NodeTotals]()
    for row in decode_frame(nodes, PoolNode) if pods else ():
        host = NodeTotals(
            get_model_name(row.gpu_model) or "",
            row.gpu_count,
            row.cpu_milli,
            row.memory_bytes,
            msgspec.json.decode(row.labels, type=dict[str, str]) if row.labels else None,
            read_taints(row.taints),
        )
        whole.append(host)
        if row.sharing in {"mig", None}:
            cut.append(host)
    instances = {pod: n for pod, n in pods.items() if pod.profile}
    rest = {pod: n for pod, n in pods.items() if not pod.profile}
    return {**keep_runnable(rest, whole), **keep_runnable(instances, cut)}


def _price_unbilled(nodes: pl.DataFrame, columns: pl.DataFrame) -> pl.DataFrame:
    """Return the bill of nodes without hours in the ledger: their lifetimes, without a price."""
    lives = (pl.col("end") - pl.col("start")).dt.total_seconds() / 3600 * pl.col("gpu_count")
    rows = nodes.select(
        "cluster",
        "node",
        "key",
        model="gpu_model",
        first_bucket="start",
        last_bucket=pl.col("end") - pl.duration(hours=1),
        gpu_hours=lives,
        free_hours=0.0,
        committed_hours=0.0,
        unpriced_hours=lives,
    )
    return pl.concat([columns, rows], how="diagonal_relaxed")


def _sum_hours(bill: pl.DataFrame, covered: pl.DataFrame) -> float:
    """Return the accounted hours from the first to the last one of the bill; all if none is."""
    if bill.is_empty():
        return 0.0
    first, last = bill["first_bucket"].min(), bill["last_bucket"].max()
    if not isinstance(first, datetime) or not isinstance(last, datetime):
        return 0.0
    accounted_s = covered.filter(pl.col("hour").is_between(first, last))["covered_s"].sum()
    return float(accounted_s) / 3600 or (last - first) / timedelta(hours=1) + 1


def _sum_pending(pods: pl.DataFrame) -> float:
    """GPUs of pods that had no node when the window ended."""
    waits = pl.col("node").is_null() & (pl.col("phase") == "Pending")
    waiting = pods.filter(waits & (pl.col("end") == pl.col("end").max()))
    return float(waiting["gpu_request"].fill_null(1.0).sum())


def compute_overhead(pods: pl.DataFrame, settings: PoolsSettings) -> NodeOverhead:
    """Return what DaemonSets use of each node: for each the largest request of one of its pods."""
    each = (
        pods.filter(pl.col("daemon"))
        .group_by("namespace", "workload")
        .agg(
            pl.col("cpu_request_milli").max().fill_null(0),
            pl.col("memory_request_bytes").max().fill_null(0),
        )
    )
    if each.is_empty():
        return NodeOverhead(
            settings.daemon_cpu_milli, settings.daemon_memory_mib, settings.daemon_pods, seen=False
        )
    memory = int(each["memory_request_bytes"].sum())
    return NodeOverhead(
        int(each["cpu_request_milli"].sum()), -(-memory // MIB), each.height, seen=True
    )


def build_own_offers(
    pool: NodePoolUsage, shapes: Sequence[PodShape], settings: PoolsSettings
) -> list[TypeOffer]:
    """Return the pool's own types, with the capacity of its nodes and the prices of the ledger.

    Overheads that were not measured are limited, so that every pod which ran there still fits.
    """
    most_cpu = max((s.cpu_milli for s in shapes), default=0)
    most_memory = max((s.memory_mib for s in shapes), default=0)
    costs = _compute_node_prices(pool)
    offers = []
    for name in pool.types:
        members = pool.nodes.filter(pl.col("type") == name)
        first = decode_frame(members.head(1), PoolNode)[0]
        model = find_gpu_model(first.gpu_model)
        cpu, memory = (
            _find_least(members, "cpu_milli", 1),
            _find_least(members, "memory_bytes", MIB),
        )
        over = pool.overhead
        offers.append(
            TypeOffer(
                instance_type=name,
                arch=first.arch,
                vendor=model.vendor if model else _find_vendor(first.gpu_resource),
                gpu_model=get_model_name(first.gpu_model) or "",
                gpus=_find_least(members, "gpu_count", 1),
                gpu_memory_mib=ANY,
                cpu_milli=cpu - _clip_overhead(over.cpu_milli, cpu - most_cpu, over),
                memory_mib=memory - _clip_overhead(over.memory_mib, memory - most_memory, over),
                pods=max(settings.max_pods - over.pods, 1),
                usd_h=costs.get(name),
                reference="the ledger",
            )
        )
    return offers


def _clip_overhead(overhead: int, room: int, over: NodeOverhead) -> int:
    return overhead if over.seen else max(min(overhead, room), 0)


def _find_least(nodes: pl.DataFrame, column: str, unit: int) -> int:
    """Return the smallest capacity of a node; nodes without data are no limit."""
    value = nodes[column].min()
    return int(value) // unit if isinstance(value, int) else ANY


def _find_vendor(resource: str | None) -> str:
    return {"amd.com": "amd", "nvidia.com": "nvidia"}.get((resource or "").partition("/")[0], "")


def _compute_node_prices(pool: NodePoolUsage) -> dict[str, Decimal]:
    """Return USD per node-hour of each type as the ledger has charged it."""
    rows = (
        pool.bill.join(pool.nodes.select("node", "type", "gpu_count"), on="node")
        .group_by("type")
        .agg(
            pl.col("usd").sum(),
            pl.col("unpriced_hours").sum(),
            node_hours=(pl.col("gpu_hours") / pl.col("gpu_count")).sum(),
        )
    )
    return {
        row.type: row.usd / Decimal(repr(row.node_hours))
        for row in decode_frame(rows, TypeCost)
        if row.usd and row.node_hours > 0 and row.unpriced_hours <= UNPRICED * row.node_hours
    }


def find_terms(pool: NodePoolUsage, prices: Sequence[TypePrice]) -> OfferTerms | None:
    """Return where other types are searched; None where the pool is in no known cloud.

    Spot and reserved prices are compared only with prices of the same term. Where a type of the
    pool has no price of its own term, list prices are compared.
    """
    provider, region = pool.first_node.provider, pool.first_node.region or ""
    if provider is None or provider not in CLOUDS:
        return None
    term = pool.first_node.capacity_type or catalogue.LIST
    if term != catalogue.LIST:
        own = catalogue.select_prices(prices, OfferTerms(provider, region, term))
        if not set(pool.types) <= set(own):
            term = catalogue.LIST
    return OfferTerms(provider, region, term)
