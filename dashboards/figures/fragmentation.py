"""Show fragmentation: free GPUs that the next pod cannot use, the causes, and the defrag plan."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

import msgspec

from dashboards.figures.analyzer_findings import (
    FindingRow,
    get_documents,
    get_mapping,
    get_number,
    list_findings,
)
from dashboards.figures.query import Filters
from fallow.protocols import Views
from fallow.window import Window

CAUSES = {
    "lack_gpu": "too few GPUs left on the node",
    "lack_cpu": "too little CPU left beside them",
    "lack_both": "too little of both",
    "sliver": "only a part of a GPU left",
    "no_access": "pods may not use this model",
}
"""Causes for pods that request GPUs: the analyzer's keys with their labels."""


class PodMove(msgspec.Struct, frozen=True):
    """One pod that the plan restarts elsewhere."""

    pod: str
    gpus: float
    source: str
    target: str


class DefragPlan(msgspec.Struct, frozen=True):
    """The fewest restarts that free so many whole slots; `why` is what prevents the plan."""

    moves: tuple[PodMove, ...]
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


class PoolFragmentation(msgspec.Struct, frozen=True):
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
    plan: DefragPlan


class Cut(msgspec.Struct, frozen=True):
    """One layout of GPUs in MIG mode: allocated and free instances, and the better layout."""

    id: str
    cluster: str
    name: str
    gpus: int
    allocated: str
    free: str
    cut_again: str


def read_pools(views: Views, window: Window, filters: Filters) -> tuple[PoolFragmentation, ...]:
    """Return the last analysis' result for each pool, the most unusable GPUs first."""
    pools_found = [
        _build_pool(finding)
        for finding in list_findings(views, window, filters, "fragmentation")
        if finding.kind == "fragmented_gpus" and _is_selected(finding, filters)
    ]
    return tuple(
        sorted(pools_found, key=lambda pool: (-pool.unusable_gpus, pool.cluster, pool.name))
    )


def read_cuts(views: Views, window: Window, filters: Filters) -> tuple[Cut, ...]:
    """Return the layouts of GPUs in MIG mode that strand slices, by the last analysis."""
    return tuple(
        Cut(
            finding.id,
            finding.cluster,
            finding.workload,
            int(get_number(layout.get("gpus"))),
            *(_join_names(layout.get(name)) for name in ("held", "free", "cut_again")),
        )
        for finding in list_findings(views, window, filters, "fragmentation")
        if finding.kind == "mig_slices" and _is_selected(finding, filters)
        for layout in get_documents(finding.details.get("layouts"))
    )


def _is_selected(finding: FindingRow, filters: Filters) -> bool:
    pool = finding.workload.rpartition("/")[0] or finding.workload
    return filters.pool is None or filters.pool in (pool, finding.workload)


def _build_pool(finding: FindingRow) -> PoolFragmentation:
    details = finding.details
    causes = {
        name: get_number(get_mapping(details.get("unusable_by_cause")).get(name)) for name in CAUSES
    }
    packing = get_mapping(details.get("packing"))
    sizes = sorted((int(size), get_mapping(fit)) for size, fit in packing.items() if size.isdigit())
    return PoolFragmentation(
        id=finding.id,
        cluster=finding.cluster,
        name=finding.workload,
        why=finding.why,
        found_at=finding.found_at,
        evidence=finding.evidence,
        gpu_hours=finding.gpu_hours,
        usd=finding.usd,
        idle_gpus=get_number(details.get("idle_gpus")),
        unusable_gpus=get_number(details.get("unusable_gpus")),
        whole_free_gpus=get_number(details.get("whole_free_gpus")),
        largest_job_gpus=get_number(details.get("largest_job_gpus")),
        gang_slots=get_number(details.get("gang_slots")),
        causes=tuple(sorted(((n, g) for n, g in causes.items() if g), key=lambda c: -c[1])),
        packing=tuple(
            (
                size,
                int(get_number(fit.get("jobs_that_fit"))),
                _parse_optional(fit.get("packability")),
            )
            for size, fit in sizes
        ),
        caused_by=tuple(get_documents(details.get("caused_by"))),
        plan=_plan(get_mapping(details.get("plan"))),
    )


def _plan(plan_details: Mapping[str, Any]) -> DefragPlan:
    moves = tuple(
        PodMove(
            str(move.get("pod")),
            get_number(move.get("gpus")),
            str(move.get("from")),
            str(move.get("to")),
        )
        for move in get_documents(plan_details.get("moves"))
    )
    return DefragPlan(
        moves=moves,
        slot_gpus=_count(get_mapping(plan_details.get("slot")).get("gpus")),
        slots_now=_count(plan_details.get("slots_now")),
        slots_wanted=_count(plan_details.get("slots_wanted")),
        slots_freed=int(get_number(plan_details.get("slots_freed"))),
        restarts=int(get_number(plan_details.get("restarts"))),
        fewest=_count(plan_details.get("fewest_possible")),
        proven=plan_details.get("proven_fewest") is True,
        gained_gpus=_parse_optional(plan_details.get("usable_gpus_gained")),
        on_nodes=tuple(str(name) for name in plan_details.get("on_nodes") or ()),
        stay={
            str(why): int(get_number(n))
            for why, n in get_mapping(plan_details.get("pods_that_stay")).items()
        },
        why=plan_details.get("why"),
    )


def _join_names(names: Sequence[str] | None) -> str:
    return ", ".join(str(name) for name in names or ())


def _parse_optional(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _count(value: object) -> int | None:
    return int(value) if isinstance(value, int | float) else None
