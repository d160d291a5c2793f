"""Build the findings of a pool: evidence, cost, and what would remove the waste."""

from collections.abc import Mapping
from datetime import datetime
from decimal import ROUND_DOWN, Decimal
from typing import Any

import msgspec
import polars as pl

from analyzers.advice import read_advice
from analyzers.money import CENT, SMALLEST
from analyzers.pools.inventory import CLOUDS, NodePoolUsage
from analyzers.pools.planning import NodeMix
from analyzers.pools.rows import FreeHours
from analyzers.pools.sizing import PoolSizing
from analyzers.rows import decode_frame
from fallow.models import Claim, Finding, FindingKey, Recommendation, Saving, State, Subject
from fallow.window import Window

ANALYZER = "pools"
MOST_NAMED = 16
HOUR_TOLERANCE = 0.01
_USED_STATES: tuple[State, ...] = ("productive", "low", "idle")
CONSOLIDATE = {
    "disruption": {
        "consolidationPolicy": "WhenEmptyOrUnderutilized",
        "consolidateAfter": "5m",
        "budgets": [{"nodes": "10%"}],
    }
}
"""A Karpenter NodePool's `spec` that removes empty nodes, a tenth of them at a time."""
TAINT = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
"""Excludes pods without a GPU request: the device plug-in's resource is tolerated by default."""


class PoolWaste(msgspec.Struct, frozen=True):
    """Hours and dollars of a pool that were paid for without use by any pod."""

    gpu_hours: float
    usd: Decimal | None
    nodes: tuple[str, ...] = ()


def build_finding(  # noqa: PLR0917  (one call per kind)
    pool: NodePoolUsage,
    window: Window,
    kind: str,
    waste: PoolWaste,
    details: Mapping[str, Any],
    claims: tuple[Claim, ...],
    doubts: tuple[str, ...] = (),
    **words: str,
) -> Finding:
    """Return a finding about a pool; any doubt makes it suspected.

    `words` fill the gaps in the advice.
    """
    about = build_subject(pool, waste.nodes)
    saving = classify_saving(pool, waste)
    days = window.seconds / 86_400
    advice = read_advice(ANALYZER)[kind].fill(words)
    caution = [advice.caution, *doubts]
    if pool.pending_gpus and saving == "capacity":
        caution.insert(0, f"pods for {pool.pending_gpus:g} GPUs wait: see why they cannot run here")
    return FindingKey(ANALYZER, kind, about, window).build(
        evidence="suspected" if doubts else "confirmed",
        confidence=0.6 if doubts else 0.9,
        gpu_hours=round(waste.gpu_hours, 6),
        usd=waste.usd,
        details={**details, "assumed": list(doubts)},
        recommendations=(
            Recommendation(
                verb=advice.verb,
                target=f"NodePool/{pool.name}",
                why=advice.why,
                reversible=True,
                undo=advice.undo,
                gpu_hours_per_day=round(waste.gpu_hours / days, 4),
                usd_per_day=None
                if waste.usd is None
                else (waste.usd / Decimal(repr(days))).quantize(CENT, ROUND_DOWN),
                caution="; ".join(filter(None, caution)) or None,
                saving=saving,
                effort=advice.effort,
                claims=claims,
            ),
        ),
    )


def build_subject(pool: NodePoolUsage, nodes: tuple[str, ...] = ()) -> Subject:
    """Return the subject of the finding."""
    named = nodes[:MOST_NAMED]
    return Subject(pool.cluster, "", "NodePool", pool.name, nodes=named, models=tuple(pool.models))


def classify_saving(pool: NodePoolUsage, waste: PoolWaste) -> Saving:
    """Return the kind of saving of a waste: the bill, or only capacity for others.

    Commitments are paid anyway: the bill falls only by hours beyond those that they paid, by the
    ledger. A node labelled reserved of which no commitment is known is paid anyway, too.
    """
    committed = float(pool.bill["committed_hours"].sum())
    hours = waste.gpu_hours
    if waste.usd and pool.usd:
        hours = max(hours, float(waste.usd / pool.usd) * pool.gpu_hours)
    is_reserved = "reserved" in set(pool.nodes["capacity_type"].drop_nulls()) and not committed
    if is_reserved or hours > pool.gpu_hours - committed + HOUR_TOLERANCE:
        return "commitment"
    if pool.pending_gpus or not set(pool.nodes["provider"]) <= set(CLOUDS):
        return "capacity"
    return "cash"


def round_money(usd: Decimal | float | None) -> Decimal | None:
    """Return dollars, rounded down."""
    if usd is None:
        return None
    exact = usd if isinstance(usd, Decimal) else Decimal(repr(usd))
    return max(exact, Decimal()).quantize(SMALLEST, ROUND_DOWN)


def claim_free(pool: NodePoolUsage, hours: Mapping[str, float]) -> tuple[Claim, ...]:
    """Claim unallocated GPU-hours node by node."""
    return tuple(
        Claim(pool.cluster, None, None, None, None, "free", h, node=node)
        for node, h in sorted(hours.items())
        if h > 0
    )


def claim_pool(pool: NodePoolUsage, gpu_hours: float, usd: Decimal | None) -> tuple[Claim, ...]:
    """Claim the free GPU-hours first, then allocated ones up to the value of the dollars."""
    where = pool.name if pool.named else None
    nodes: list[str | None] = [None] if pool.named else sorted(pool.nodes["node"])
    part = Decimal(1) / len(nodes)

    def claims(state: State, hours: float, worth: Decimal | None) -> list[Claim]:
        return [
            Claim(pool.cluster, None, None, None, where, state, hours / len(nodes),
                  None if worth is None else round_money(worth * part), node)
            for node in nodes
        ]  # fmt: skip

    bill = pool.usd
    if usd is None or not bill:
        return tuple(claims("free", gpu_hours, None))
    each = bill / Decimal(repr(pool.gpu_hours))
    freed = min(usd, each * Decimal(repr(gpu_hours)))
    pool_claims = claims("free", gpu_hours, freed) if gpu_hours > 0 else []
    left = usd - freed
    if left > CENT:
        hours = float(left / each)
        pool_claims += [
            c
            for state in _USED_STATES
            for c in claims(state, hours / len(_USED_STATES), left / len(_USED_STATES))
        ]
    return tuple(pool_claims)


def compute_free_waste(
    pool: NodePoolUsage, wanted: Mapping[str, float]
) -> tuple[PoolWaste, dict[str, float]]:
    """Return the cost of GPU-hours per node, of those that the ledger counts as unallocated."""
    rows = pool.bill.group_by("node").agg(
        pl.col("free_hours").sum(), pl.col("free_usd").sum(), pl.col("unpriced_hours").sum()
    )
    hours: dict[str, float] = {}
    usd, unpriced = Decimal(), False
    for row in decode_frame(rows.sort("node"), FreeHours):
        got = min(wanted.get(row.node, 0.0), row.free_hours)
        if got <= 0:
            continue
        hours[row.node] = got
        unpriced |= row.unpriced_hours > 0
        paid, free = row.free_usd or Decimal(), Decimal(repr(row.free_hours))
        usd += paid * Decimal(repr(got)) / free
    costs = None if unpriced or not hours else round_money(usd)
    return PoolWaste(
        sum(hours.values()), costs, tuple(sorted(hours, key=lambda n: (-hours[n], n)))
    ), hours


def describe_sizing(pool: NodePoolUsage, sizing: PoolSizing, chosen: NodeMix) -> dict[str, Any]:
    """Return the figures of a sizing: demand, today, packed, bound, alternatives."""
    peak, unit = sizing.peak, "usd_per_hour" if sizing.priced else "gpus"
    today = float(pool.usd or 0) / pool.hours if sizing.priced and pool.hours else None
    mix = chosen.mix if sizing.priced else [{**m, "usd_per_hour": None} for m in chosen.mix]
    return {
        "demand": {
            "gpus": round(peak.gpus, 3),
            "cpu_cores": round(peak.cpu_cores, 3),
            "memory_gib": round(peak.memory_gib, 3),
            "pods": peak.pods,
            "requests": len(peak.shapes),
            "peaks": {name: f"{at:%Y-%m-%dT%H:%MZ}" for name, at in sorted(peak.times.items())},
        },
        "today": {
            "nodes": pool.nodes.height,
            "types": dict(sorted(pool.nodes.group_by("type").len().iter_rows())),
            "gpus": int(pool.nodes["gpu_count"].sum()),
            "mean_gpus": round(pool.gpu_hours / pool.hours, 3) if pool.hours else None,
            "usd_per_hour": None if today is None else round(today, 4),
        },
        "packed": {"mix": mix, unit: round(chosen.usd_h, 4), "nodes": len(chosen.nodes.kind)},
        "bound": {unit: round(chosen.bound_usd_h, 4), "gap": round(chosen.gap, 4)},
        "same_type": {
            "nodes": len(sizing.own.nodes.kind),
            "nodes_bound": sizing.own_nodes_bound or None,
            unit: round(sizing.own.usd_h, 4),
        },
        "one_type": [
            {"instance_type": name, "nodes": n, "usd_per_hour": round(usd, 4)}
            for name, n, usd in (chosen.alone[:5] if sizing.priced else ())
        ],
        "refused_types": sizing.refused,
        "market": None if sizing.market is None else msgspec.to_builtins(sizing.market),
        "price_as_of": _find_price_date(pool),
        "manifest": {"spec": CONSOLIDATE},
    }


def _find_price_date(pool: NodePoolUsage) -> str | None:
    latest = pool.bill["as_of"].max()
    return f"{latest:%Y-%m-%d}" if isinstance(latest, datetime) else None
