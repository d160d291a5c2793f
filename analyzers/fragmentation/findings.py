"""Findings of fragmentation: one per pool and GPU model, and one per pool of MIG GPUs."""

from collections import Counter
from collections.abc import Mapping, Sequence
from decimal import ROUND_DOWN, Decimal
from typing import Any

import msgspec
import numpy as np

from analyzers.fragmentation.advice import PoolLoss, recommend, recommend_layouts
from analyzers.fragmentation.blockers import rank_blockers
from analyzers.fragmentation.cluster_state import ClusterState, UnallocatedCost
from analyzers.fragmentation.defragmentation import apply_plan, build_placement, describe_plan
from analyzers.fragmentation.figures import (
    ClusterMeasurement,
    FragmentationFigures,
    compute_figures,
    measure_packable,
    probe_cpu,
)
from analyzers.fragmentation.mig_devices import MigGpu, read_mig_devices
from analyzers.fragmentation.mig_layouts import build_parameters
from analyzers.fragmentation.node_pools import ModelPool
from analyzers.fragmentation.placement import FreeSlot, PoolPlacement
from analyzers.fragmentation.planning import plan_most
from analyzers.money import SMALLEST
from analyzers.pending import Pending, sum_gpus
from fallow.fragmentation import FragmentationMeasure
from fallow.models import Evidence, Finding, FindingKey, Subject
from fallow.protocols import Views
from fallow.settings.capacity import FragmentationSettings
from fallow.window import Window

MOST_NODES = 16
FREE, STRANDED = "fragmented_gpus", "mig_slices"
NO_HOURS = "the devices have no samples: no hours, and no dollars"
LEAST_SHOWN = 0.05
"""GPUs; less is 0.0 in the text."""
MILLI = 1000
MIB = 2**20


def build_pool_finding(
    state: ClusterState,
    measurement: ClusterMeasurement,
    pool: ModelPool,
    window: Window,
    settings: FragmentationSettings,
) -> Finding | None:
    """Return the finding of a pool's loss; None below `min_gpus` on the mean of the times."""
    rows = pool.rows
    mean_gpus = float(measurement.unusable[:, rows].sum(axis=1).mean()) / MILLI
    if mean_gpus < settings.min_gpus:
        return None
    seen = compute_figures(state, measurement, rows, settings.slot_gpus)
    ratio = measurement.ratio()
    money = compute_lost(state, ratio, rows)
    subject = Subject(
        state.cluster,
        "",
        "NodePool",
        pool.name,
        nodes=_rank_nodes(state, measurement, rows),
        models=(pool.model,) if pool.model else (),
    )
    planned, freed = _plan_pool(state, measurement, pool, settings)
    waiting = measurement.next_pods.waiting(pool)
    evidence = _build_evidence(state, waiting)
    details: dict[str, Any] = {
        "why": _explain(seen, waiting, mean_gpus),
        **describe_figures(seen),
        "cpu_probe": probe_cpu(state, rows),
        "mix": _describe_mix(state),
        "pending": _describe_waiting(waiting),
        "caused_by": rank_blockers(state, rows, measurement.next_pods.types(pool)),
        "plan": planned,
        "moments": len(measurement.idle),
        "assumptions": [*state.notes, *([NO_HOURS] if state.still else [])],
    }
    return FindingKey("fragmentation", FREE, subject, window).build(
        evidence=evidence,
        confidence=_compute_confidence(state, rows, evidence),
        gpu_hours=money.gpu_hours,
        usd=money.usd,
        details=details,
        recommendations=recommend(
            PoolLoss(subject, pool.pool, pool.model, money, window),
            details,
            freed,
            measure_packable(state, measurement, pool),
        ),
    )


def build_mig_finding(
    views: Views,
    state: ClusterState,
    pool: ModelPool,
    window: Window,
    settings: FragmentationSettings,
) -> Finding | None:
    """Return the finding of a pool's stranded MIG capacity; None below `min_gpus`."""
    names = {state.nodes[n].name for n in pool.rows}
    cut = [b for b in read_mig_devices(state.mig, state.demand) if b.node in names]
    gpus = sum(b.stranded / b.slices for b in cut)
    if not cut or gpus < settings.min_gpus:
        return None
    money = sum_costs(state.stranded.get(name) for name in sorted(names))
    subject = Subject(
        state.cluster,
        "",
        "NodePool",
        pool.name,
        nodes=tuple(sorted({b.node for b in cut}))[:MOST_NODES],
        models=(pool.model,) if pool.model else (),
    )
    details = describe_mig(cut)
    again = build_parameters(views, state.cluster, window.end, cut)
    loss = PoolLoss(subject, pool.pool, pool.model, money, window)
    return FindingKey("fragmentation", STRANDED, subject, window).build(
        evidence="confirmed" if state.demand.profiles else "suspected",
        confidence=1.0 if state.demand.profiles else 0.5,
        gpu_hours=money.gpu_hours,
        usd=money.usd,
        details=details,
        recommendations=recommend_layouts(loss, details, again or {}),
    )


def describe_mig(cut: Sequence[MigGpu]) -> dict[str, Any]:
    """Return what GPUs in MIG mode strand, in GPUs, and the layouts that would strand less."""
    layouts: dict[tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]], int] = {}
    for gpu in cut:
        key = gpu.allocated, gpu.free, gpu.layout
        layouts[key] = layouts.get(key, 0) + 1
    lost, again = (sum(parts) for parts in zip(*_convert_to_gpus(cut), strict=True))
    return {
        "why": f"{lost:.2f} GPUs in MIG mode have profiles that no pod requests; "
        f"{lost - again:.2f} of them another layout would give back",
        "gpus": len(cut),
        "idle_gpus": _sum_gpus(b.free_slices / b.slices for b in cut),
        "fragmented_gpus": _sum_gpus(b.stranded / b.slices for b in cut),
        "fragmented_gpus_cut_again": _sum_gpus(b.stranded_recut / b.slices for b in cut),
        "layouts": [
            {
                "held": list(allocated),
                "free": list(free),
                "cut_again": list(layout),
                "gpus": count,
            }
            for (allocated, free, layout), count in sorted(layouts.items(), key=lambda i: -i[1])
        ][:MOST_NODES],
    }


def _convert_to_gpus(cut: Sequence[MigGpu]) -> list[tuple[float, float]]:
    return [(b.stranded / b.slices, b.stranded_recut / b.slices) for b in cut]


def describe_figures(seen: FragmentationFigures) -> dict[str, Any]:
    """Return figures as a document."""
    document: dict[str, Any] = msgspec.to_builtins(seen)
    return document


def compute_lost(state: ClusterState, ratio: Any, rows: Sequence[int]) -> UnallocatedCost:
    """Return the free GPU-hours of the window that the next GPU pod could not use, and dollars."""
    parts = []
    for n in rows:
        free = state.free.get(state.nodes[n].name)
        if free is not None:
            usd = None if free.usd is None else free.usd * Decimal(repr(float(ratio[n])))
            parts.append(UnallocatedCost(free.gpu_hours * float(ratio[n]), usd))
    return sum_costs(parts)


def sum_costs(parts: Any) -> UnallocatedCost:
    """Sum costs; if one part has no price, the sum has none."""
    costs = [part for part in parts if part is not None]
    hours = round(sum((part.gpu_hours for part in costs), 0.0), 6)
    if not costs or any(part.usd is None for part in costs):
        return UnallocatedCost(hours, None)
    # Never above the bill: the rounding is less than a millionth of a dollar.
    usd = sum((part.usd for part in costs), Decimal(0))
    return UnallocatedCost(hours, usd.quantize(SMALLEST, ROUND_DOWN))


def _plan_pool(
    state: ClusterState,
    measurement: ClusterMeasurement,
    pool: ModelPool,
    settings: FragmentationSettings,
) -> tuple[dict[str, Any], float]:
    """Return the pool's plan as a document, and the GPUs that are usable after it."""
    waiting = measurement.next_pods.waiting(pool)
    usual = FreeSlot(settings.slot_gpus, state.demand.cpu_of(settings.slot_gpus))
    on = build_placement(state, pool.rows, usual, settings.move_kinds)
    on, lacking = _fit_waiting_slot(on, waiting)
    largest = max(len(state.devices[n]) for n in pool.rows)
    if largest < on.slot.gpus:
        why = f"no node of this pool has {on.slot.gpus} GPUs"
        return {"slots_freed": 0, "moves": [], "why": why}, 0.0
    wanted = lacking or settings.slots
    plan = plan_most(on, wanted, settings.plan_seconds)
    document = describe_plan(on, plan, wanted)
    read = state.budgets.is_polled(state.cluster)
    document["disruption_budgets"] = "kept" if read else "not collected"
    if plan is None:
        return document, 0.0
    measure = FragmentationMeasure(measurement.next_pods.types(pool))
    cpu, gpu = apply_plan(on, plan)
    models = [pool.model] * len(on.places)
    before = state.gpu[-1][[n for n in pool.rows if state.nodes[n].open]]
    was = measure.fragments(np.array([p.cpu_milli for p in on.places]), before, models).sum()
    gain = float(was - measure.fragments(cpu, gpu, models).sum()) / MILLI
    document["usable_gpus_gained"] = round(gain, 3)
    return document, max(0.0, gain)


def _fit_waiting_slot(on: PoolPlacement, waiting: Pending) -> tuple[PoolPlacement, int]:
    """Return the pool with the slot that most waiting GPUs need, and how many slots are missing.

    Pods that request the same number of whole GPUs share a slot, with the largest CPU and memory of
    any of them. Pods that fit on free capacity need no slot.
    """
    best, lacking = on, 0
    for size in sorted({p.gpus for p in waiting if p.gpu_milli == MILLI}):
        pods = [p for p in waiting if p.gpus == size and p.gpu_milli == MILLI]
        memory = max(-(-p.memory_bytes // MIB) for p in pods)
        other = msgspec.structs.replace(
            on, slot=FreeSlot(size, max(p.cpu_milli for p in pods), memory)
        )
        have = sum(other.slots(n) for n in range(len(other.places)))
        count = sum(waiting[p] for p in pods) - have
        if count > 0 and count * size >= lacking * best.slot.gpus:
            best, lacking = other, count
    return best, lacking


def _describe_waiting(waiting: Pending) -> dict[str, Any]:
    sizes = Counter[str]()
    for pod, count in waiting.items():
        sizes[f"{pod.amount:g}"] += count
    return {
        "pods": sum(waiting.values()),
        "gpus": round(sum_gpus(waiting), 3),
        "pods_by_gpus": dict(sorted(sizes.items(), key=lambda item: -float(item[0]))),
    }


def _describe_mix(state: ClusterState) -> dict[str, Any]:
    demand = state.demand
    return {
        "pods_seen": demand.pods,
        "requests_seen": demand.kinds,
        "requests_in_mix": len(demand.types),
        "asks_gpus": round(demand.gpu_share, 4),
        "assumed": demand.assumed,
    }


def _build_evidence(state: ClusterState, waiting: Pending) -> Evidence:
    """Return the evidence.

    The inventory has requests, telemetry has free capacity, so 1 or 2 signals.
    """
    assumed = state.demand.assumed and not waiting
    return "suspected" if state.still or assumed else "confirmed"


def _compute_confidence(state: ClusterState, rows: Sequence[int], evidence: Evidence) -> float:
    known_part = sum(state.nodes[n].cpu_milli is not None for n in rows) / len(rows)
    return round(known_part * (1.0 if evidence == "confirmed" else 0.5), 4)


def _rank_nodes(
    state: ClusterState, measurement: ClusterMeasurement, rows: Sequence[int]
) -> tuple[str, ...]:
    ranked = sorted(rows, key=lambda n: (-measurement.unusable[-1][n], state.nodes[n].name))
    worst = [n for n in ranked[:MOST_NODES] if measurement.unusable[-1][n] > 0]
    return tuple(state.nodes[n].name for n in worst)


def _explain(seen: FragmentationFigures, waiting: Pending, mean_gpus: float) -> str:
    if seen.unusable_gpus < LEAST_SHOWN:
        return (
            f"on the mean of the window the next pods could not use {mean_gpus:,.1f} idle GPUs; "
            "at its end there are none of these"
        )
    causes: Mapping[str, float] = seen.unusable_by_cause
    cause = max(causes, key=lambda name: causes[name])
    consumer = "the next pod that asks for GPUs is expected not to use"
    if waiting:
        count = sum(waiting.values())
        consumer = f"the {count} pods that wait for {sum_gpus(waiting):,.4g} GPUs cannot use"
    return (
        f"of {seen.idle_gpus:,.1f} idle GPUs {consumer} {seen.unusable_gpus:,.1f}; most are lost "
        f"to: {cause.replace('_', ' ')}"
    )


def _sum_gpus(parts: Any) -> float:
    return round(float(sum(parts)), 6)
