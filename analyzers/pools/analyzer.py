"""Find node pools of the wrong size or shape, unneeded nodes, and GPUs that lack host capacity."""

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import polars as pl

from analyzers.pending import sum_gpus
from analyzers.pools import timeline
from analyzers.pools.findings import (
    CONSOLIDATE,
    TAINT,
    PoolWaste,
    build_finding,
    build_subject,
    claim_free,
    claim_pool,
    compute_free_waste,
    describe_sizing,
    round_money,
)
from analyzers.pools.inventory import NodePoolUsage, PoolInventory, read_pools
from analyzers.pools.rows import EmptyHours, StrandedHours
from analyzers.pools.sizing import PoolSizing, list_used_types, size_pool
from analyzers.rows import decode_frame
from fallow.models import Finding, Unjudged
from fallow.protocols import Views
from fallow.settings.capacity import PoolsSettings
from fallow.window import Window

LEAST_GPU_HOURS = 1.0
"""Smaller amounts are not reported."""
UNSEEN = "the inventory shows no pod without GPUs: others may run there unseen"
MOST_SQUATTERS = 8
MOST_NAMED = 16


class PoolsAnalyzer:
    """Find node pools that cost more than their pods need (telemetry-and-waste.md#node-pools)."""

    def __init__(self, settings: PoolsSettings | None = None) -> None:
        self.settings = settings or PoolsSettings()

    def find(self, views: Views, window: Window) -> list[Finding]:
        """Return what each pool wastes, the most dollars first."""
        site = read_pools(views, window, self.settings)
        findings: list[Finding] = []
        for pool in site.pools:
            findings += self._sizing(pool, site, window)
            findings += self._by_node(pool, window)
            findings += _find_mixed(pool, window)
        return sorted(findings, key=lambda f: (-(f.usd or Decimal()), -f.gpu_hours, f.id))

    def unjudged(self, views: Views, window: Window) -> list[Unjudged]:
        """Return the pools whose size or shape cannot be judged, and why."""
        site = read_pools(views, window, self.settings)
        unjudged = []
        for pool in site.pools:
            reasons = self._withheld(pool, site)
            if reasons:
                unjudged.append(Unjudged(build_subject(pool), round(pool.gpu_hours, 6), reasons))
        return unjudged

    def _withheld(self, pool: NodePoolUsage, site: PoolInventory) -> tuple[str, ...]:
        if not pool.hours:
            return ("the ledger has none of its hours",)
        sizing = size_pool(pool, site.prices, self.settings)
        if isinstance(sizing, str):
            return (sizing,)
        if not sizing.priced:
            return ("part of it has no price: its size is judged in GPUs, its shape is not",)
        if sizing.best is None:
            return ("it stands in no known cloud: its size is judged, other types are not",)
        return ()

    def _sizing(
        self, pool: NodePoolUsage, site: PoolInventory, window: Window
    ) -> Iterator[Finding]:
        sizing = size_pool(pool, site.prices, self.settings) if pool.hours else ""
        if isinstance(sizing, str):
            return
        if sizing.priced:
            yield from self._in_dollars(pool, sizing, window)
        else:
            yield from self._in_gpus(pool, sizing, window)

    def _in_dollars(
        self, pool: NodePoolUsage, sizing: PoolSizing, window: Window
    ) -> Iterator[Finding]:
        bill, hours = pool.usd or Decimal(), Decimal(repr(pool.hours))
        worth = Decimal(repr(self.settings.min_saving)) * bill
        best = sizing.best or sizing.own
        chosen = sizing.own
        if (Decimal(repr(sizing.own.usd_h)) - Decimal(repr(best.usd_h))) * hours >= max(
            worth, Decimal("0.000001")
        ):
            chosen = best
        saved = bill - Decimal(repr(chosen.usd_h)) * hours
        if saved <= 0 or saved < worth:
            return
        reshaped = not list_used_types(chosen) <= set(pool.types)
        gpus = sum(int(str(m["gpus"])) for m in chosen.mix)
        released = min(max(pool.gpu_hours - gpus * pool.hours, 0.0), pool.gpu_hours)
        usd = round_money(saved)
        yield build_finding(
            pool,
            window,
            "misshapen_pool" if reshaped else "oversized_pool",
            PoolWaste(released, usd),
            {
                "why": _explain(pool, sizing, chosen.usd_h, gpus),
                **describe_sizing(pool, sizing, chosen),
            },
            claim_pool(pool, min(released, pool.free_hours), usd),
            _list_doubts(pool, sizing),
            region=(sizing.market.region if sizing.market else "") or "the region",
        )

    def _in_gpus(
        self, pool: NodePoolUsage, sizing: PoolSizing, window: Window
    ) -> Iterator[Finding]:
        released = pool.gpu_hours - sizing.own.usd_h * pool.hours
        if released < max(self.settings.min_saving * pool.gpu_hours, LEAST_GPU_HOURS):
            return
        gpus = round(sizing.own.usd_h)
        yield build_finding(
            pool,
            window,
            "oversized_pool",
            PoolWaste(released, None),
            {
                "why": f"{pool.gpu_hours / pool.hours:.1f} GPUs on average, {gpus} would do at the "
                "peak; part of it has no price",
                **describe_sizing(pool, sizing, sizing.own),
            },
            claim_pool(pool, min(released, pool.free_hours), None),
            _list_doubts(pool, sizing),
        )

    def _by_node(self, pool: NodePoolUsage, window: Window) -> Iterator[Finding]:
        steps = timeline.find_stretches(pool.pods, pool.nodes)
        if steps.is_empty():
            return
        least = self.settings.empty_after.total_seconds() / 3600
        unused = timeline.sum_empty_hours(steps, least)
        doubts = () if pool.hosts_seen else (UNSEEN,)
        by_node = decode_frame(unused, EmptyHours)
        wanted = _exclude_waiting(pool, {r.node: r.empty_hours * r.gpu_count for r in by_node})
        waste, hours = compute_free_waste(pool, wanted)
        if waste.gpu_hours >= LEAST_GPU_HOURS:
            share = waste.gpu_hours / pool.gpu_hours
            details: dict[str, Any] = {
                "why": f"nodes without any pod but DaemonSets for {share:.0%} of the pool's hours",
                "nodes": len(hours),
                "node_hours": round(float(unused["empty_hours"].sum()), 3),
                "manifest": {"spec": CONSOLIDATE},
            }
            claims = claim_free(pool, hours)
            yield build_finding(pool, window, "empty_nodes", waste, details, claims, doubts)
        wanted = {r.node: r.squatted_hours * r.gpu_count for r in by_node}
        waste, hours = compute_free_waste(pool, wanted)
        if waste.gpu_hours >= LEAST_GPU_HOURS:
            details = {
                "why": "GPU nodes kept alive by pods that ask for no GPU",
                "nodes": len(hours),
                "node_hours": round(float(unused["squatted_hours"].sum()), 3),
                "squatters": _rank_squatters(pool, hours),
                "manifest": {"spec": {"template": {"spec": {"taints": [TAINT]}}}},
                "tainted": _is_tainted(pool),
            }
            claims = claim_free(pool, hours)
            taint = (
                "remove the tolerations of these pods"
                if details["tainted"]
                else "taint the nodes {key}={value}:{effect}".format(**TAINT)
            )
            yield build_finding(pool, window, "cpu_squatters", waste, details, claims, taint=taint)
        yield from self._stranded(pool, steps, window)

    def _stranded(
        self, pool: NodePoolUsage, steps: pl.DataFrame, window: Window
    ) -> Iterator[Finding]:
        stranded = timeline.sum_stranded(steps, pool.pods)
        causes = ("by_cpu", "by_memory", "by_both")
        rows = decode_frame(stranded, StrandedHours)
        wanted = {r.node: r.by_cpu + r.by_memory + r.by_both for r in rows}
        waste, hours = compute_free_waste(pool, wanted)
        if waste.gpu_hours < LEAST_GPU_HOURS:
            return
        first = rows[0]
        details = {
            "why": "free GPUs on nodes with less CPU or memory free than half of the pool's pods "
            "ask per GPU",
            "gpu_hours_by_cause": {
                cause.removeprefix("by_"): round(float(stranded[cause].sum()), 3)
                for cause in causes
            },
            "cpu_milli_per_gpu_p50": first.cpu_per_gpu,
            "memory_bytes_per_gpu_p50": first.memory_per_gpu,
            "stranded_cpu_core_hours": round(float(stranded["core_hours"].sum()), 3),
            "hogs": _rank_cpu_requests(pool, first.cpu_per_gpu),
        }
        claims = claim_free(pool, hours)
        yield build_finding(pool, window, "stranded_gpus", waste, details, claims)


def _exclude_waiting(pool: NodePoolUsage, hours: dict[str, float]) -> dict[str, float]:
    """Leave out the nodes with the GPUs that pods wait for, those longest empty first."""
    left = sum_gpus(pool.waiting)
    sizes = dict(pool.nodes.select("node", "gpu_count").iter_rows())
    reserved = set()
    for node in sorted(hours, key=lambda n: (-hours[n], n)):
        if left <= 0:
            break
        reserved.add(node)
        left -= sizes[node]
    return {node: value for node, value in hours.items() if node not in reserved}


def _find_mixed(pool: NodePoolUsage, window: Window) -> Iterator[Finding]:
    """Find pools with several GPU models: a pod that does not select one gets a random model."""
    models = pool.models
    if len(models) < 2:  # noqa: PLR2004  (one model is no mixture)
        return
    gpu_pods = pool.pods.filter((pl.col("gpu_request") > 0) & ~pl.col("daemon"))
    careless = gpu_pods.filter(pl.col("selector").is_null() & pl.col("gpu_spec").is_null())
    both = (
        careless.group_by("namespace", "workload_kind", "workload")
        .agg(models=pl.col("gpu_model").n_unique())
        .filter(pl.col("models") > 1)
        .sort("namespace", "workload_kind", "workload")
    )
    by_model = pool.nodes.group_by("gpu_model").len().sort("gpu_model")
    details = {
        "why": f"{len(models)} GPU models in one pool, and {careless.height} of {gpu_pods.height} "
        "pods with GPUs do not say which they need",
        "nodes_by_model": dict(by_model.iter_rows()),
        "workloads_on_several": [
            f"{k}/{n}/{w}" for n, k, w, _ in both.head(MOST_NAMED).iter_rows()
        ],
        "workloads_on_several_count": both.height,
        "manifest": [
            {
                "nodeSelector": {"nvidia.com/gpu.product": model},
                "taints": [{"key": "gpu-model", "value": model, "effect": "NoSchedule"}],
            }
            for model in sorted(pool.nodes["gpu_model"].drop_nulls().unique())
        ],
    }
    yield build_finding(pool, window, "mixed_pool", PoolWaste(0.0, None), details, ())


def _explain(pool: NodePoolUsage, sizing: PoolSizing, usd_h: float, gpus: int) -> str:
    bill = float(pool.usd or 0) / pool.hours
    return (
        f"{bill:.2f} USD/h for {pool.gpu_hours / pool.hours:.1f} GPUs on average; its pods at "
        f"their peak ask {sizing.peak.gpus:g} GPUs, which {gpus} GPUs for {usd_h:.2f} USD/h hold"
    )


def _list_doubts(pool: NodePoolUsage, sizing: PoolSizing) -> tuple[str, ...]:
    return (*(() if pool.hosts_seen else (UNSEEN,)), *sizing.assumed)


def _is_tainted(pool: NodePoolUsage) -> bool:
    return bool(pool.nodes["taints"].fill_null("").str.contains(TAINT["key"], literal=True).all())


def _rank_squatters(pool: NodePoolUsage, hours: dict[str, float]) -> list[dict[str, Any]]:
    alone = pool.pods.filter(
        ~pl.col("daemon") & (pl.col("gpu_request") <= 0) & pl.col("node").is_in(list(hours))
    )
    by = (
        alone.group_by("namespace", "workload_kind", "workload")
        .agg(pods=pl.len(), cpu_milli=pl.col("cpu_request_milli").sum())
        .sort("pods", "namespace", "workload_kind", "workload", descending=[True, *[False] * 3])
    )
    return by.head(MOST_SQUATTERS).to_dicts()


def _rank_cpu_requests(pool: NodePoolUsage, typical: float | None) -> list[dict[str, Any]]:
    """Name the workloads that request more than twice the usual CPU per GPU."""
    requested = pl.col("gpu_request")
    by = (
        pool.pods.filter((requested > 0) & ~pl.col("daemon"))
        .with_columns(cpu_milli_per_gpu=pl.col("cpu_request_milli") / requested)
        .group_by("namespace", "workload_kind", "workload")
        .agg(pl.col("cpu_milli_per_gpu").max())
        .filter(pl.col("cpu_milli_per_gpu") > 2 * (typical or 0))
        .sort("cpu_milli_per_gpu", "namespace", "workload", descending=[True, False, False])
    )
    return by.head(MOST_SQUATTERS).to_dicts()
