"""Recommend how to make lost GPUs usable: moves, right CPU requests, tighter packing, layouts."""

from decimal import ROUND_DOWN, Decimal
from typing import Any

import msgspec

from analyzers.fragmentation.cluster_state import UnallocatedCost
from analyzers.money import CENT, SMALLEST
from fallow.models import Claim, Recommendation, State, Subject
from fallow.window import Window

DAY_S = 86_400
HOUR_S = 3600


class PoolLoss(msgspec.Struct, frozen=True):
    """The loss of a pool: its subject, and the hours and dollars of the window."""

    subject: Subject
    pool: str
    model: str
    money: UnallocatedCost
    window: Window


def recommend(
    loss: PoolLoss, details: dict[str, Any], freed: float, packable: float
) -> tuple[Recommendation, ...]:
    """Return the recommendations, moves first; each claims what it alone would free.

    `freed` is the number of additional usable GPUs after the plan's moves, `packable` the share of
    the loss that better packing could make usable.
    """
    causes = details["unusable_by_cause"]
    everything = sum(causes.values())
    cpu = causes["lack_cpu"] / everything if everything else 0.0
    recommendations = []
    if details["plan"]["moves"]:
        recommendation = _recommend_moves(loss.subject, details["plan"], freed)
        recommendations.append(
            _claim_share(recommendation, loss, _compute_share(freed, loss), "free")
        )
    rest = [
        (cpu, _recommend_less_cpu(loss.subject, details, cpu)),
        (min(1 - cpu, packable), _recommend_packing(loss.subject)),
    ]
    for part, recommendation in sorted(rest, key=lambda pair: -pair[0]):
        if part > 0:
            recommendations.append(_claim_share(recommendation, loss, part, "free"))
    return tuple(recommendations)


def recommend_layouts(
    loss: PoolLoss, details: dict[str, Any], parameters: dict[str, Any]
) -> tuple[Recommendation, ...]:
    """Return the MIG layouts that would strand less, if there are any.

    `parameters`: those of the nodes whose whole layout may be changed (`mig_layouts.py`).
    """
    gain = details["fragmented_gpus"] - details["fragmented_gpus_cut_again"]
    if gain <= 0:
        return ()
    best = max(details["layouts"], key=lambda layout: layout["gpus"])
    recommendation = Recommendation(
        verb="cut-again",
        target=f"{details['gpus']} GPUs in MIG mode",
        why=f"{gain:.2f} GPUs more could be requested, most GPUs as {'+'.join(best['cut_again'])}",
        reversible=True,
        undo="restore the earlier nvidia.com/mig.config label",
        caution="only GPUs without processes: mig-manager does not drain workloads by itself",
        effort="advanced",
        parameters=parameters,
    )
    return (_claim_share(recommendation, loss, 1.0, "stranded"),)


def _recommend_moves(subject: Subject, plan: dict[str, Any], freed: float) -> Recommendation:
    count, slots = len(plan["moves"]), plan["slots_freed"]
    proven = (
        "no plan restarts fewer"
        if plan["proven_fewest"]
        else (f"at least {plan['fewest_possible']} are needed")
    )
    return Recommendation(
        verb="defragment",
        target=f"{count} pods of {subject.workload}",
        why=f"moving them frees {slots} x {plan['slot']['gpus']} whole GPUs and makes {freed:.1f} "
        f"GPUs usable ({plan['restarts']} restarts; {proven})",
        reversible=True,
        undo="none is needed: the pods run as before, on other nodes",
        caution="cordon the nodes to be freed first, and move by eviction: "
        + (
            "the plan keeps the disruption budgets"
            if plan["disruption_budgets"] == "kept"
            else "the disruption budgets were not read, and only evictions keep them"
        ),
        effort="advanced",
    )


def _recommend_less_cpu(subject: Subject, details: dict[str, Any], part: float) -> Recommendation:
    worst = [blocker for blocker in details["caused_by"] if blocker["by_its_cpu"] > 0][:3]
    names = ", ".join(f"{blocker['namespace']}/{blocker['workload']}" for blocker in worst)
    return Recommendation(
        verb="right-size-cpu",
        target=names or subject.workload,
        why=f"{part:.0%} of what is lost lacks only CPU: ask for the CPU that is used, and keep "
        "pods without GPUs off these nodes",
        reversible=True,
        undo="restore the earlier requests",
        caution="check CPU throttling and use first",
        effort="continuous",
    )


def _recommend_packing(subject: Subject) -> Recommendation:
    return Recommendation(
        verb="place new pods on fuller nodes",
        target=subject.workload,
        why="place new GPU pods where the least is left (NodeResourcesFit MostAllocated on the GPU "
        "resource, or a scheduler that follows the fragmentation gradient)",
        reversible=True,
        undo="restore the earlier scheduler profile",
        caution="packed pods share the fate of their node",
        effort="continuous",
    )


def _compute_share(freed: float, loss: PoolLoss) -> float:
    """Return the share of the lost hours that a number of GPUs makes over the window."""
    if not loss.money.gpu_hours:
        return 0.0
    return min(1.0, freed * loss.window.seconds / HOUR_S / loss.money.gpu_hours)


def _claim_share(
    recommendation: Recommendation, loss: PoolLoss, part: float, state: State
) -> Recommendation:
    """Claim a part of the loss: unallocated hours of the pool, in that state."""
    hours = round(loss.money.gpu_hours * part, 6)
    if not hours:
        return recommendation
    usd, per_day = loss.money.usd, None
    days = loss.window.seconds / DAY_S
    if usd is not None:
        usd = (usd * Decimal(repr(part))).quantize(SMALLEST, ROUND_DOWN)
        per_day = (usd / Decimal(repr(days))).quantize(CENT, ROUND_DOWN)
    pool, model = loss.pool or None, loss.model or None
    claim = Claim(loss.subject.cluster, "", "", "", pool, state, hours, usd, model=model)
    return msgspec.structs.replace(
        recommendation,
        gpu_hours_per_day=round(hours / days, 3),
        usd_per_day=per_day,
        claims=(claim,),
    )
