"""Findings of fragmentation: one per pool and GPU model, and one per pool of MIG boards."""

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
from fallow.models import Evidence, Finding, Subject, finding_id
from fallow.protocols import Views
from fallow.settings import FragmentationSettings
from fallow.window import Window

MOST_NODES = 16
FREE, STRANDED = "fragmented_gpus", "mig_slices"
NO_HOURS = "nobody looked at the devices: no hours, and no dollars"
MILLI = 1000
MIB = 2**20


def build_pool_finding(
    picture: ClusterState,
    said: ClusterMeasurement,
    pool: ModelPool,
    window: Window,
    settings: FragmentationSettings,
) -> Finding | None:
    """Return what a pool loses; None below `min_gpus`, on the mean of the moments."""
    rows = pool.rows
    if said.unusable[:, rows].sum(axis=1).mean() < settings.min_gpus * MILLI:
        return None
    seen = compute_figures(picture, said, rows, settings.slot_gpus)
    ratio = said.ratio()
    money = compute_lost(picture, ratio, rows)
    subject = Subject(
        picture.cluster,
        "",
        "NodePool",
        pool.name,
        nodes=_rank_nodes(picture, said, rows),
        models=(pool.model,) if pool.model else (),
    )
    planned, freed = _plan_pool(picture, said, pool, settings)
    waiting = said.next_pods.waiting(pool)
    evidence = _build_evidence(picture, waiting)
    details: dict[str, Any] = {
        "why": _explain(seen, waiting),
        **describe_figures(seen),
        "cpu_probe": probe_cpu(picture, rows),
        "mix": _describe_mix(picture),
        "pending": _describe_waiting(waiting),
        "caused_by": rank_blockers(picture, rows, said.next_pods.types(pool)),
        "plan": planned,
        "moments": len(said.idle),
        "assumptions": [*picture.notes, *([NO_HOURS] if picture.still else [])],
    }
    return Finding(
        id=finding_id("fragmentation", FREE, subject, window.start),
        analyzer="fragmentation",
        kind=FREE,
        subject=subject,
        window=window,
        verdict="wasteful",
        evidence=evidence,
        confidence=_compute_confidence(picture, rows, evidence),
        gpu_hours=money.gpu_hours,
        usd=money.usd,
        details=details,
        recommendations=recommend(
            PoolLoss(subject, pool.pool, pool.model, money, window), details, freed
        ),
    )


def build_mig_finding(
    views: Views,
    picture: ClusterState,
    pool: ModelPool,
    window: Window,
    settings: FragmentationSettings,
) -> Finding | None:
    """Return what a pool's MIG boards strand; None below `min_gpus`."""
    names = {picture.nodes[n].name for n in pool.rows}
    cut = [b for b in read_mig_devices(picture.mig, picture.demand) if b.node in names]
    gpus = sum(b.stranded / b.slices for b in cut)
    if not cut or gpus < settings.min_gpus:
        return None
    money = sum_costs(picture.stranded.get(name) for name in sorted(names))
    subject = Subject(
        picture.cluster,
        "",
        "NodePool",
        pool.name,
        nodes=tuple(sorted({b.node for b in cut}))[:MOST_NODES],
        models=(pool.model,) if pool.model else (),
    )
    details = describe_mig(cut)
    again = build_parameters(views, picture.cluster, window.end, cut)
    loss = PoolLoss(subject, pool.pool, pool.model, money, window)
    return Finding(
        id=finding_id("fragmentation", STRANDED, subject, window.start),
        analyzer="fragmentation",
        kind=STRANDED,
        subject=subject,
        window=window,
        verdict="wasteful",
        evidence="confirmed" if picture.demand.profiles else "suspected",
        confidence=1.0 if picture.demand.profiles else 0.5,
        gpu_hours=money.gpu_hours,
        usd=money.usd,
        details=details,
        recommendations=recommend_layouts(loss, details, again or {}),
    )


def describe_mig(cut: Sequence[MigGpu]) -> dict[str, Any]:
    """Return what boards in MIG mode strand, in GPUs, and the layouts that would strand less."""
    layouts: dict[tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]], int] = {}
    for board in cut:
        key = board.held, board.free, board.layout
        layouts[key] = layouts.get(key, 0) + 1
    lost, again = (sum(parts) for parts in zip(*_convert_to_gpus(cut), strict=True))
    return {
        "why": f"{lost:.2f} GPUs of boards in MIG mode are cut into what no pod asks for; "
        f"{lost - again:.2f} of them another layout would give back",
        "boards": len(cut),
        "idle_gpus": _sum_gpus(b.free_slices / b.slices for b in cut),
        "fragmented_gpus": _sum_gpus(b.stranded / b.slices for b in cut),
        "fragmented_gpus_cut_again": _sum_gpus(b.stranded_recut / b.slices for b in cut),
        "layouts": [
            {"held": list(held), "free": list(free), "cut_again": list(layout), "boards": count}
            for (held, free, layout), count in sorted(layouts.items(), key=lambda i: -i[1])
        ][:MOST_NODES],
    }


def _convert_to_gpus(cut: Sequence[MigGpu]) -> list[tuple[float, float]]:
    return [(b.stranded / b.slices, b.stranded_recut / b.slices) for b in cut]


def describe_figures(seen: FragmentationFigures) -> dict[str, Any]:
    """Return figures as a document."""
    document: dict[str, Any] = msgspec.to_builtins(seen)
    return document


def compute_lost(picture: ClusterState, ratio: Any, rows: Sequence[int]) -> UnallocatedCost:
    """Return the free GPU-hours of the window that the next GPU pod could not use, and dollars."""
    parts = []
    for n in rows:
        free = picture.free.get(picture.nodes[n].name)
        if free is not None:
            usd = None if free.usd is None else free.usd * Decimal(repr(float(ratio[n])))
            parts.append(UnallocatedCost(free.gpu_hours * float(ratio[n]), usd))
    return sum_costs(parts)


def sum_costs(parts: Any) -> UnallocatedCost:
    """Sum money; one part without a price leaves the sum without."""
    known = [part for part in parts if part is not None]
    hours = round(sum((part.gpu_hours for part in known), 0.0), 6)
    if not known or any(part.usd is None for part in known):
        return UnallocatedCost(hours, None)
    # Never above the bill: what rounding drops is less than a millionth of a dollar.
    usd = sum((part.usd for part in known), Decimal(0))
    return UnallocatedCost(hours, usd.quantize(SMALLEST, ROUND_DOWN))


def _plan_pool(
    picture: ClusterState,
    said: ClusterMeasurement,
    pool: ModelPool,
    settings: FragmentationSettings,
) -> tuple[dict[str, Any], float]:
    """Return the pool's plan as a document, and the GPUs that are usable once it is done."""
    waiting = said.next_pods.waiting(pool)
    usual = FreeSlot(settings.slot_gpus, picture.demand.cpu_of(settings.slot_gpus))
    on = build_placement(picture, pool.rows, usual, settings.move_kinds)
    on, lacking = _fit_waiting_slot(on, waiting)
    largest = max(len(picture.devices[n]) for n in pool.rows)
    if largest < on.slot.gpus:
        why = f"no node of this pool has {on.slot.gpus} GPUs"
        return {"slots_freed": 0, "moves": [], "why": why}, 0.0
    wanted = lacking or settings.slots
    found = plan_most(on, wanted, settings.plan_seconds)
    made = describe_plan(on, found, wanted)
    read = picture.budgets.known(picture.cluster)
    made["disruption_budgets"] = "kept" if read else "not collected"
    if found is None:
        return made, 0.0
    measure = FragmentationMeasure(said.next_pods.types(pool))
    cpu, gpu = apply_plan(on, found)
    models = [pool.model] * len(on.places)
    before = picture.gpu[-1][[n for n in pool.rows if picture.nodes[n].open]]
    was = measure.fragments(np.array([p.cpu_milli for p in on.places]), before, models).sum()
    gain = float(was - measure.fragments(cpu, gpu, models).sum()) / MILLI
    made["usable_gpus_gained"] = round(gain, 3)
    return made, max(0.0, gain)


def _fit_waiting_slot(on: PoolPlacement, waiting: Pending) -> tuple[PoolPlacement, int]:
    """Return the pool with the slot that waiting pods lack the most GPUs of, and how many lack.

    Pods that ask for as many whole GPUs share a slot, with the most CPU and memory that one of
    them asks for. What fits what is free already lacks no slot.
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


def _describe_mix(picture: ClusterState) -> dict[str, Any]:
    demand = picture.demand
    return {
        "pods_seen": demand.pods,
        "requests_seen": demand.kinds,
        "requests_in_mix": len(demand.types),
        "asks_gpus": round(demand.gpu_share, 4),
        "assumed": demand.assumed,
    }


def _build_evidence(picture: ClusterState, waiting: Pending) -> Evidence:
    """Inventory says what is asked, telemetry what is free: two signals, or one."""
    assumed = picture.demand.assumed and not waiting
    return "suspected" if picture.still or assumed else "confirmed"


def _compute_confidence(picture: ClusterState, rows: Sequence[int], evidence: Evidence) -> float:
    known = sum(picture.nodes[n].cpu_milli is not None for n in rows) / len(rows)
    return round(known * (1.0 if evidence == "confirmed" else 0.5), 4)


def _rank_nodes(
    picture: ClusterState, said: ClusterMeasurement, rows: Sequence[int]
) -> tuple[str, ...]:
    ranked = sorted(rows, key=lambda n: (-said.unusable[-1][n], picture.nodes[n].name))
    worst = [n for n in ranked[:MOST_NODES] if said.unusable[-1][n] > 0]
    return tuple(picture.nodes[n].name for n in worst)


def _explain(seen: FragmentationFigures, waiting: Pending) -> str:
    causes: Mapping[str, float] = seen.unusable_by_cause
    cause = max(causes, key=lambda name: causes[name])
    whose = "the next pod that asks for GPUs is expected not to use"
    if waiting:
        count = sum(waiting.values())
        whose = f"the {count} pods that wait for {sum_gpus(waiting):,.4g} GPUs cannot use"
    return (
        f"of {seen.idle_gpus:,.1f} idle GPUs {whose} {seen.unusable_gpus:,.1f}; most are lost to: "
        f"{cause.replace('_', ' ')}"
    )


def _sum_gpus(parts: Any) -> float:
    return round(float(sum(parts)), 6)
