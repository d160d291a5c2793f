"""Fragmentation: free GPUs that the next pod cannot use, why, and the plan that gives them back."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

import msgspec

from dashboards.figures.asking import Filters
from dashboards.figures.found import Found, found, listed, mapping, number
from fallow.seams import Views
from fallow.window import Window

CAUSES = {
    "lack_gpu": "too few GPUs left on the node",
    "lack_cpu": "too little CPU left beside them",
    "lack_both": "too little of both",
    "sliver": "only a part of a GPU left",
    "no_access": "pods may not use this model",
}
"""Causes of pods that ask for GPUs, as the analyzer spells them, in words."""


class Move(msgspec.Struct, frozen=True):
    """One pod that the plan restarts elsewhere."""

    pod: str
    gpus: float
    source: str
    target: str


class Plan(msgspec.Struct, frozen=True):
    """The fewest restarts that give so many whole slots; `why` says what stands in its way."""

    moves: tuple[Move, ...]
    slot_gpus: int | None
    slots_now: int | None
    slots_wanted: int | None
    slots_freed: int
    restarts: int
    fewest: int | None
    proven: bool
    gained_gpus: float | None
    on_nodes: tuple[str, ...]
    stay: Mapping[str, int]
    why: str | None


class Pool(msgspec.Struct, frozen=True):
    """What one pool loses, in GPUs at the end of the analysis' window; dollars of the window."""

    id: str
    cluster: str
    name: str
    why: str
    found_at: datetime
    evidence: str
    gpu_hours: float
    usd: Decimal | None
    idle_gpus: float
    unusable_gpus: float
    whole_free_gpus: float
    largest_job_gpus: float
    gang_slots: float
    causes: tuple[tuple[str, float], ...]
    """GPUs lost to each of `CAUSES`, the most first."""
    packing: tuple[tuple[int, int, float | None], ...]
    """Size of a job in GPUs, how many fit, and the part of the free GPUs that they would use."""
    caused_by: tuple[Mapping[str, Any], ...]
    plan: Plan


class Cut(msgspec.Struct, frozen=True):
    """One layout of MIG boards: what is held, what is free, and what would strand less."""

    id: str
    name: str
    boards: int
    held: str
    free: str
    cut_again: str


def pools(views: Views, window: Window, filters: Filters) -> tuple[Pool, ...]:
    """Return what the last analysis says of each pool, the most unusable GPUs first."""
    made = [
        _pool(one)
        for one in found(views, window, filters, "fragmentation")
        if one.kind == "fragmented_gpus" and _asked(one, filters)
    ]
    return tuple(sorted(made, key=lambda pool: (-pool.unusable_gpus, pool.cluster, pool.name)))


def cuts(views: Views, window: Window, filters: Filters) -> tuple[Cut, ...]:
    """Return the layouts of MIG boards that strand slices, as the last analysis saw them."""
    return tuple(
        Cut(
            one.id,
            one.workload,
            int(number(layout.get("boards"))),
            *(_names(layout.get(name)) for name in ("held", "free", "cut_again")),
        )
        for one in found(views, window, filters, "fragmentation")
        if one.kind == "mig_slices" and _asked(one, filters)
        for layout in listed(one.details.get("layouts"))
    )


def _asked(one: Found, filters: Filters) -> bool:
    pool = one.workload.rpartition("/")[0] or one.workload
    return filters.pool is None or filters.pool in (pool, one.workload)


def _pool(one: Found) -> Pool:
    said = one.details
    causes = {name: number(mapping(said.get("unusable_by_cause")).get(name)) for name in CAUSES}
    packing = mapping(said.get("packing"))
    sizes = sorted((int(size), mapping(fit)) for size, fit in packing.items() if size.isdigit())
    return Pool(
        id=one.id,
        cluster=one.cluster,
        name=one.workload,
        why=one.why,
        found_at=one.found_at,
        evidence=one.evidence,
        gpu_hours=one.gpu_hours,
        usd=one.usd,
        idle_gpus=number(said.get("idle_gpus")),
        unusable_gpus=number(said.get("unusable_gpus")),
        whole_free_gpus=number(said.get("whole_free_gpus")),
        largest_job_gpus=number(said.get("largest_job_gpus")),
        gang_slots=number(said.get("gang_slots")),
        causes=tuple(sorted(((n, g) for n, g in causes.items() if g), key=lambda c: -c[1])),
        packing=tuple(
            (size, int(number(fit.get("jobs_that_fit"))), _maybe(fit.get("packability")))
            for size, fit in sizes
        ),
        caused_by=tuple(listed(said.get("caused_by"))),
        plan=_plan(mapping(said.get("plan"))),
    )


def _plan(said: Mapping[str, Any]) -> Plan:
    moves = tuple(
        Move(
            str(move.get("pod")),
            number(move.get("gpus")),
            str(move.get("from")),
            str(move.get("to")),
        )
        for move in listed(said.get("moves"))
    )
    return Plan(
        moves=moves,
        slot_gpus=_count(mapping(said.get("slot")).get("gpus")),
        slots_now=_count(said.get("slots_now")),
        slots_wanted=_count(said.get("slots_wanted")),
        slots_freed=int(number(said.get("slots_freed"))),
        restarts=int(number(said.get("restarts"))),
        fewest=_count(said.get("fewest_possible")),
        proven=said.get("proven_fewest") is True,
        gained_gpus=_maybe(said.get("usable_gpus_gained")),
        on_nodes=tuple(str(name) for name in said.get("on_nodes") or ()),
        stay={str(why): int(number(n)) for why, n in mapping(said.get("pods_that_stay")).items()},
        why=said.get("why"),
    )


def _names(names: Sequence[str] | None) -> str:
    return ", ".join(str(name) for name in names or ())


def _maybe(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _count(value: object) -> int | None:
    return int(value) if isinstance(value, int | float) else None
