"""Compute the cost of a workload's on-demand hours of one instance type on spot.

It includes the cost of interruptions.
"""

import math
from collections.abc import Sequence
from datetime import timedelta
from decimal import ROUND_DOWN, Decimal
from typing import Any

import msgspec

from analyzers.checkpoints import Checkpoints
from analyzers.money import SMALLEST
from analyzers.spot.market import InterruptionRisk, SpotMarket, SpotOffer
from analyzers.spot.progress import draw_capacity, run_uniform_progress
from analyzers.spot.rows import WorkedHours
from analyzers.spot.tolerance import ToleranceSignals
from fallow.checkpointing import compute_realised_share, compute_time_per_work
from fallow.settings.workloads import SpotSettings
from fallow.spot_advisor import NodeType

TRACES = 200
SEED = 20171128
"""A fixed seed: the same waste gives the same finding tomorrow."""
MOST_ZONES = 3
STEPS = 4000
"""Maximum steps of a simulated deadline."""


class SpotPlan(msgspec.Struct, frozen=True):
    """Hours of one instance type in one region, and their price on spot."""

    key: NodeType
    offers: tuple[SpotOffer, ...]
    """Offers with a real discount, the cheapest hour of work first."""
    risk: InterruptionRisk
    gpu_hours: float
    """GPU-hours that would move."""
    paid_usd: Decimal
    saved_usd: Decimal
    stretched: float
    best_stretched: float | None
    on_demand_replicas: int
    facts: dict[str, Any]
    rows: tuple[WorkedHours, ...]
    part: float
    """Share of the hours that would move."""


class NoPlan(msgspec.Struct, frozen=True):
    """Why there is no advice: `unknown` reasons are missing data, others are judgements."""

    reason: str
    unknown: bool = False


def plan_move(  # noqa: PLR0911  (each refusal has its own reason)
    key: NodeType,
    rows: Sequence[WorkedHours],
    signals: ToleranceSignals,
    market: SpotMarket,
    settings: SpotSettings,
) -> SpotPlan | NoPlan:
    """Return the saving of a move of these hours, or why it is not advised."""
    hours, paid = sum(r.gpu_hours for r in rows), sum((r.cost for r in rows), Decimal())
    if hours <= 0 or paid <= 0:
        return NoPlan("it cost nothing")
    rate = float(paid) / hours
    offers = market.offers(key)
    where = f"{key[2]} in {key[1]}"
    if not offers:
        return NoPlan(f"no spot price of {where} is known", unknown=True)
    ceiling = 1 - settings.min_discount
    good = [o for o in offers if o.usd_per_gpu_hour <= ceiling * min(rate, o.list_usd_per_gpu_hour)]
    if not good:
        return NoPlan(f"spot nodes of {where} have no real discount")
    risk = market.risk(key)
    if risk is None:
        return NoPlan(f"how often spot nodes of {where} go is unknown", unknown=True)
    good.sort(key=lambda o: (o.usd_per_gpu_hour, o.zone))
    saving = (_plan_replicas if signals.tolerance == "replicated" else _plan_job)(
        signals, good, risk, rate, settings
    )
    if isinstance(saving, NoPlan):
        return saving
    saved = (paid * Decimal(repr(saving.share))).quantize(SMALLEST, ROUND_DOWN)
    if saving.share < settings.min_saving or saved <= 0:
        return NoPlan("interruptions would cost about what the discount saves")
    return SpotPlan(
        key=key,
        offers=tuple(good),
        risk=risk,
        gpu_hours=hours * saving.part,
        paid_usd=paid,
        saved_usd=saved,
        stretched=saving.stretched,
        best_stretched=saving.best,
        on_demand_replicas=saving.base,
        facts=saving.facts,
        rows=tuple(rows),
        part=saving.part,
    )


class _SpotSaving(msgspec.Struct, frozen=True):
    share: float
    """The saving as a share of the present cost."""
    part: float
    stretched: float
    best: float | None
    base: int
    facts: dict[str, Any]


def find_surviving_checkpoints(signals: ToleranceSignals) -> Checkpoints | None:
    """Return the checkpoints that survive the loss of a node; those on its own disk do not."""
    seen = signals.checkpoints
    if seen and seen.source == "writes" and signals.local_volumes and not signals.claims:
        return None
    return seen


def _plan_job(
    signals: ToleranceSignals,
    good: Sequence[SpotOffer],
    risk: InterruptionRisk,
    rate: float,
    settings: SpotSettings,
) -> _SpotSaving | NoPlan:
    checkpoints = find_surviving_checkpoints(signals)
    if checkpoints is None and not signals.ended:
        return NoPlan(
            "no checkpoint was seen and no run has ended: what an interruption would cost is "
            "unknown",
            unknown=True,
        )
    interval = checkpoints.interval_h if checkpoints else signals.run_hours
    restart = settings.restart.total_seconds() / 3600
    if signals.deadline is not None:
        return _plan_deadline(signals, good[0], risk, rate, settings)

    def longer(hours: float) -> float:
        return compute_time_per_work(interval, 0.0, hours / signals.nodes, restart)

    stretched = longer(risk.hours)
    share = compute_realised_share(good[0].usd_per_gpu_hour, rate, stretched)
    facts = {
        "work_between_saves_hours": round(interval, 3),
        "nodes_at_risk": signals.nodes,
        "mtbf_hours_of_the_gang": round(risk.hours / signals.nodes, 3),
    }
    best = None if risk.best_hours is None else longer(risk.best_hours)
    return _SpotSaving(share, 1.0, stretched, best, 0, facts)


def _plan_replicas(
    signals: ToleranceSignals,
    good: Sequence[SpotOffer],
    risk: InterruptionRisk,
    rate: float,
    settings: SpotSettings,
) -> _SpotSaving | NoPlan:
    many = signals.replicas
    if many < 2:  # noqa: PLR2004  (one replica has no other to replace it)
        return NoPlan("one replica has no other to take over")
    used = good[:MOST_ZONES]
    zones = len(used)
    base = math.ceil(many * (zones * settings.survivors - zones + 1) - 1e-9)
    base = min(max(base, 1), many)
    part = (many - base) / many
    if part <= 0:
        return NoPlan("all replicas are needed whatever is taken back")
    restart = settings.restart.total_seconds() / 3600
    # The replacement is paid for while the next replica starts.
    stretched = 1 + restart / risk.hours
    price = sum(o.usd_per_gpu_hour for o in used) / zones
    share = part * compute_realised_share(price, rate, stretched)
    best = None if risk.best_hours is None else 1 + restart / risk.best_hours
    facts = {
        "replicas": many,
        "on_demand_replicas": base,
        "spot_replicas": many - base,
        "zones": zones,
        "left_when_a_zone_goes": base + math.floor((many - base) * (1 - 1 / zones)),
    }
    return _SpotSaving(share, part, stretched, best, base, facts)


def _plan_deadline(
    signals: ToleranceSignals,
    offer: SpotOffer,
    risk: InterruptionRisk,
    rate: float,
    settings: SpotSettings,
) -> _SpotSaving | NoPlan:
    """Evaluate work with a deadline: run Uniform Progress on drawn capacity."""
    checkpoints = find_surviving_checkpoints(signals)
    if signals.work_hours is None or signals.deadline is None:
        return NoPlan("it has a deadline and does not say its fallow.dev/work-hours", unknown=True)
    if checkpoints is None:
        return NoPlan("it has a deadline and no checkpoint was seen", unknown=True)
    restart = settings.restart.total_seconds() / 3600
    wait = settings.wait.total_seconds() / 3600
    switch = restart + checkpoints.interval_h
    until = (signals.deadline - signals.start) / timedelta(hours=1)
    step = max(until / STEPS, 1 / 60)
    if until < signals.work_hours + 2 * (switch + step):
        return NoPlan("its deadline leaves no room for an interruption")
    there = draw_capacity(
        traces=TRACES,
        hours=until,
        step_h=step,
        up_h=risk.hours / signals.nodes,
        down_h=wait,
        seed=SEED,
    )
    ran = run_uniform_progress(
        there, work_h=signals.work_hours, deadline_h=until, switch_h=switch, step_h=step
    )
    costs = ran.usd(offer.usd_per_gpu_hour, rate) / (signals.work_hours * rate)
    facts = {
        "deadline": signals.deadline.isoformat(),
        "work_hours": signals.work_hours,
        "policy": "Uniform Progress",
        "traces": TRACES,
        "deadlines_met": int(ran.finished.sum()),
        "mean_spot_hours": round(float(ran.spot.mean()), 2),
        "mean_on_demand_hours": round(float(ran.demand.mean()), 2),
        "cost_share_mean": round(float(costs.mean()), 4),
        "cost_share_worst": round(float(costs.max()), 4),
    }
    longer = float((ran.spot + ran.demand).mean()) / signals.work_hours
    return _SpotSaving(1 - float(costs.mean()), 1.0, longer, None, 0, facts)
