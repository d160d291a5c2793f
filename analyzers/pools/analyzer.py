"""Node pools of the wrong size or shape, nodes kept for nothing, GPUs their host keeps from use."""

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import polars as pl

from analyzers.pending import gpus_of
from analyzers.pools import timeline
from analyzers.pools.findings import (
    CONSOLIDATE,
    TAINT,
    Waste,
    about_plan,
    free_claims,
    free_part,
    made,
    money,
    pool_claims,
    subject,
)
from analyzers.pools.site import Pool, Site, read
from analyzers.pools.sizing import Sizing, sized, used_types
from fallow.nouns import Finding, Unjudged
from fallow.seams import Views
from fallow.settings import PoolsSettings
from fallow.window import Window

LEAST_GPU_HOURS = 1.0
"""Less is not worth a word."""
UNSEEN = "the inventory shows no pod without GPUs: others may run there unseen"
MOST_SQUATTERS = 8
MOST_NAMED = 16


class PoolsAnalyzer:
    """Find node pools that cost more than their pods need (telemetry-and-waste.md#node-pools)."""

    def __init__(self, settings: PoolsSettings | None = None) -> None:
        self.settings = settings or PoolsSettings()

    def find(self, views: Views, window: Window) -> list[Finding]:
        """Return what each pool wastes, the most dollars first."""
        site = read(views, window, self.settings)
        found: list[Finding] = []
        for pool in site.pools:
            found += self._sizing(pool, site, window)
            found += self._by_node(pool, window)
            found += _mixed(pool, window)
        return sorted(found, key=lambda f: (-(f.usd or Decimal()), -f.gpu_hours, f.id))

    def unjudged(self, views: Views, window: Window) -> list[Unjudged]:
        """Return the pools whose size or shape cannot be judged, and why."""
        site = read(views, window, self.settings)
        held = []
        for pool in site.pools:
            reasons = self._withheld(pool, site)
            if reasons:
                held.append(Unjudged(subject(pool), round(pool.gpu_hours, 6), reasons))
        return held

    def _withheld(self, pool: Pool, site: Site) -> tuple[str, ...]:
        if not pool.hours:
            return ("the ledger has none of its hours",)
        found = sized(pool, site.rates, self.settings)
        if isinstance(found, str):
            return (found,)
        if not found.priced:
            return ("part of it has no price: its size is judged in GPUs, its shape is not",)
        if found.best is None:
            return ("it stands in no known cloud: its size is judged, other types are not",)
        return ()

    def _sizing(self, pool: Pool, site: Site, window: Window) -> Iterator[Finding]:
        found = sized(pool, site.rates, self.settings) if pool.hours else ""
        if isinstance(found, str):
            return
        if found.priced:
            yield from self._in_dollars(pool, found, window)
        else:
            yield from self._in_gpus(pool, found, window)

    def _in_dollars(self, pool: Pool, found: Sizing, window: Window) -> Iterator[Finding]:
        bill, hours = pool.usd or Decimal(), Decimal(repr(pool.hours))
        worth = Decimal(repr(self.settings.min_saving)) * bill
        best = found.best or found.own
        chosen = found.own
        if (Decimal(repr(found.own.usd_h)) - Decimal(repr(best.usd_h))) * hours >= max(
            worth, Decimal("0.000001")
        ):
            chosen = best
        saved = bill - Decimal(repr(chosen.usd_h)) * hours
        if saved <= 0 or saved < worth:
            return
        reshaped = not used_types(chosen) <= set(pool.types)
        gpus = sum(int(str(m["gpus"])) for m in chosen.mix)
        released = min(max(pool.gpu_hours - gpus * pool.hours, 0.0), pool.gpu_hours)
        usd = money(saved)
        yield made(
            pool,
            window,
            "misshapen_pool" if reshaped else "oversized_pool",
            Waste(released, usd),
            {"why": _why(pool, found, chosen.usd_h, gpus), **about_plan(pool, found, chosen)},
            pool_claims(pool, min(released, pool.free_hours), usd),
            _doubts(pool, found),
            region=(found.market.region if found.market else "") or "the region",
        )

    def _in_gpus(self, pool: Pool, found: Sizing, window: Window) -> Iterator[Finding]:
        released = pool.gpu_hours - found.own.usd_h * pool.hours
        if released < max(self.settings.min_saving * pool.gpu_hours, LEAST_GPU_HOURS):
            return
        gpus = round(found.own.usd_h)
        yield made(
            pool,
            window,
            "oversized_pool",
            Waste(released, None),
            {
                "why": f"{pool.gpu_hours / pool.hours:.1f} GPUs on average, {gpus} would do at the "
                "peak; part of it has no price",
                **about_plan(pool, found, found.own),
            },
            pool_claims(pool, min(released, pool.free_hours), None),
            _doubts(pool, found),
        )

    def _by_node(self, pool: Pool, window: Window) -> Iterator[Finding]:
        steps = timeline.stretches(pool.pods, pool.nodes)
        if steps.is_empty():
            return
        least = self.settings.empty_after.total_seconds() / 3600
        unused = timeline.without_work(steps, least)
        doubts = () if pool.hosts_seen else (UNSEEN,)
        wanted = _beyond_waiting(
            pool,
            {r["node"]: r["empty_hours"] * r["gpu_count"] for r in unused.iter_rows(named=True)},
        )
        waste, hours = free_part(pool, wanted)
        if waste.gpu_hours >= LEAST_GPU_HOURS:
            share = waste.gpu_hours / pool.gpu_hours
            details: dict[str, Any] = {
                "why": f"nodes without any pod but DaemonSets for {share:.0%} of the pool's hours",
                "nodes": len(hours),
                "node_hours": round(float(unused["empty_hours"].sum()), 3),
                "manifest": {"spec": CONSOLIDATE},
            }
            claims = free_claims(pool, hours)
            yield made(pool, window, "empty_nodes", waste, details, claims, doubts)
        wanted = {
            r["node"]: r["squatted_hours"] * r["gpu_count"] for r in unused.iter_rows(named=True)
        }
        waste, hours = free_part(pool, wanted)
        if waste.gpu_hours >= LEAST_GPU_HOURS:
            details = {
                "why": "GPU nodes kept alive by pods that ask for no GPU",
                "nodes": len(hours),
                "node_hours": round(float(unused["squatted_hours"].sum()), 3),
                "squatters": _squatters(pool, hours),
                "manifest": {"spec": {"template": {"spec": {"taints": [TAINT]}}}},
                "tainted": _tainted(pool),
            }
            claims = free_claims(pool, hours)
            taint = (
                "remove the tolerations of these pods"
                if details["tainted"]
                else "taint the nodes {key}={value}:{effect}".format(**TAINT)
            )
            yield made(pool, window, "cpu_squatters", waste, details, claims, taint=taint)
        yield from self._stranded(pool, steps, window)

    def _stranded(self, pool: Pool, steps: pl.DataFrame, window: Window) -> Iterator[Finding]:
        rows = timeline.stranded(steps, pool.pods)
        causes = ("by_cpu", "by_memory", "by_both")
        wanted = {r["node"]: sum(r[c] for c in causes) for r in rows.iter_rows(named=True)}
        waste, hours = free_part(pool, wanted)
        if waste.gpu_hours < LEAST_GPU_HOURS:
            return
        first = rows.row(0, named=True)
        details = {
            "why": "free GPUs on nodes with less CPU or memory free than half of the pool's pods "
            "ask per GPU",
            "gpu_hours_by_cause": {
                cause.removeprefix("by_"): round(float(rows[cause].sum()), 3) for cause in causes
            },
            "cpu_milli_per_gpu_p50": first["cpu_per_gpu"],
            "memory_bytes_per_gpu_p50": first["memory_per_gpu"],
            "stranded_cpu_core_hours": round(float(rows["core_hours"].sum()), 3),
            "hogs": _hogs(pool, first["cpu_per_gpu"]),
        }
        claims = free_claims(pool, hours)
        yield made(pool, window, "stranded_gpus", waste, details, claims)


def _beyond_waiting(pool: Pool, hours: dict[str, float]) -> dict[str, float]:
    """Leave out the nodes, those longest empty first, that hold the GPUs that pods wait for."""
    left = gpus_of(pool.waiting)
    sizes = dict(pool.nodes.select("node", "gpu_count").iter_rows())
    kept = set()
    for node in sorted(hours, key=lambda n: (-hours[n], n)):
        if left <= 0:
            break
        kept.add(node)
        left -= sizes[node]
    return {node: value for node, value in hours.items() if node not in kept}


def _mixed(pool: Pool, window: Window) -> Iterator[Finding]:
    """Several GPU models in one pool: which one a pod gets is chance, unless it says so."""
    models = pool.models
    if len(models) < 2:  # noqa: PLR2004  (one model is no mixture)
        return
    held = pool.pods.filter((pl.col("gpu_request") > 0) & ~pl.col("daemon"))
    careless = held.filter(pl.col("selector").is_null() & pl.col("gpu_spec").is_null())
    both = (
        careless.group_by("namespace", "workload_kind", "workload")
        .agg(models=pl.col("gpu_model").n_unique())
        .filter(pl.col("models") > 1)
        .sort("namespace", "workload_kind", "workload")
    )
    by_model = pool.nodes.group_by("gpu_model").len().sort("gpu_model")
    details = {
        "why": f"{len(models)} GPU models in one pool, and {careless.height} of {held.height} pods "
        "with GPUs do not say which they need",
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
    yield made(pool, window, "mixed_pool", Waste(0.0, None), details, ())


def _why(pool: Pool, found: Sizing, usd_h: float, gpus: int) -> str:
    bill = float(pool.usd or 0) / pool.hours
    return (
        f"{bill:.2f} USD/h for {pool.gpu_hours / pool.hours:.1f} GPUs on average; its pods at "
        f"their peak ask {found.peak.gpus:g} GPUs, which {gpus} GPUs for {usd_h:.2f} USD/h hold"
    )


def _doubts(pool: Pool, found: Sizing) -> tuple[str, ...]:
    return (*(() if pool.hosts_seen else (UNSEEN,)), *found.assumed)


def _tainted(pool: Pool) -> bool:
    return bool(pool.nodes["taints"].fill_null("").str.contains(TAINT["key"], literal=True).all())


def _squatters(pool: Pool, hours: dict[str, float]) -> list[dict[str, Any]]:
    alone = pool.pods.filter(
        ~pl.col("daemon") & (pl.col("gpu_request") <= 0) & pl.col("node").is_in(list(hours))
    )
    by = (
        alone.group_by("namespace", "workload_kind", "workload")
        .agg(pods=pl.len(), cpu_milli=pl.col("cpu_request_milli").sum())
        .sort("pods", "namespace", "workload_kind", "workload", descending=[True, *[False] * 3])
    )
    return by.head(MOST_SQUATTERS).to_dicts()


def _hogs(pool: Pool, typical: float | None) -> list[dict[str, Any]]:
    """Name the workloads that ask for more than twice the usual CPU per GPU."""
    asked = pl.col("gpu_request")
    by = (
        pool.pods.filter((asked > 0) & ~pl.col("daemon"))
        .with_columns(cpu_milli_per_gpu=pl.col("cpu_request_milli") / asked)
        .group_by("namespace", "workload_kind", "workload")
        .agg(pl.col("cpu_milli_per_gpu").max())
        .filter(pl.col("cpu_milli_per_gpu") > 2 * (typical or 0))
        .sort("cpu_milli_per_gpu", "namespace", "workload", descending=[True, False, False])
    )
    return by.head(MOST_SQUATTERS).to_dicts()
