"""Build the findings and the advice of demand: head-room, reservations, tomorrow's requests."""

from collections.abc import Iterator, Mapping
from datetime import timedelta
from decimal import ROUND_DOWN, Decimal
from typing import Any

import msgspec
import numpy as np

from analyzers.advice import read_advice
from analyzers.arrays import Doubles
from analyzers.demand.clusters import ClusterCapacity, ClusterDemand
from analyzers.demand.forecast import DemandForecast
from analyzers.demand.headroom import (
    DAY_HOURS,
    WEEK_HOURS,
    Headroom,
    compute_critical_ratio,
    compute_headroom,
)
from analyzers.demand.reservations import ReservedGpus, compute_saved_hours, count_to_reserve
from analyzers.money import CENT, compute_dollars
from fallow.models import Claim, Finding, FindingKey, Recommendation, Subject
from fallow.settings.capacity import DemandSettings
from fallow.window import Window, format_duration

ANALYZER = "demand"
ASSUMED_LEVEL = "no cost of a cold start is set (demand.cold_start_usd): a service level is assumed"


def find_excess(
    cluster: ClusterDemand, ratios: Mapping[str, float], window: Window, settings: DemandSettings
) -> Iterator[Finding]:
    """Yield what a cluster pays for without demand, or at a higher price than necessary."""
    if cluster.capacity is None:
        return
    yield from _find_idle_headroom(cluster, cluster.capacity, window, settings)
    for model, reserved in sorted(cluster.capacity.reserved.items()):
        yield from _find_reservation_waste(cluster, model, reserved, window, settings)
        ratio = ratios.get(model, settings.reserved_ratio)
        if ratio is not None:
            yield from _find_base(cluster, model, reserved, ratio, window, settings)
    yield from _find_above(cluster, cluster.capacity, window)
    yield from _find_quarter(cluster, window)


def advise_headroom(cluster: ClusterDemand, window: Window, settings: DemandSettings) -> Headroom:
    """Return the worthwhile head-room: newsvendor where a cold start has a cost, else by level."""
    price = cluster.capacity.usd_h if cluster.capacity is not None else None
    ratio = settings.service_level
    if settings.cold_start_usd is not None and price is not None:
        over = price * settings.hold.total_seconds() / 3600
        ratio = compute_critical_ratio(float(settings.cold_start_usd), over)
    lead_s = settings.lead.total_seconds()
    return compute_headroom(cluster.arrivals, cluster.since, window.end, lead_s, ratio)


def _find_idle_headroom(
    cluster: ClusterDemand, capacity: ClusterCapacity, window: Window, settings: DemandSettings
) -> Iterator[Finding]:
    if cluster.history_days < settings.least_days:
        return
    expected = _expect_demand(cluster)
    if expected is not None and expected.max() > capacity.gpus:
        return  # today's free GPUs are requested tomorrow: `demand_above_capacity`
    ready = advise_headroom(cluster, window, settings)
    keep = compute_kept(cluster, capacity, ready)
    over = np.maximum(capacity.free - keep[_find_week_hours(capacity)], 0)
    hours = round(float(over.sum()), 6)
    if hours < max(settings.min_gpu_hours, 1e-6):
        return
    assumed = [] if settings.cold_start_usd is not None else [ASSUMED_LEVEL]
    details = {
        "why": f"{capacity.free.mean():.1f} GPUs are free on average; {ready.gpus:g} ready ones "
        f"serve {ready.critical_ratio:.1%} of the stretches of {format_duration(ready.lead_s)}"
        + (f", and pods wait for {cluster.waiting_gpus:g}" if cluster.waiting_gpus else ""),
        "waiting_gpus": cluster.waiting_gpus,
        "keep_by_hour_utc": [round(float(gpus), 3) for gpus in keep],
        "critical_ratio": ready.critical_ratio,
        "headroom_gpus": ready.gpus,
        "headroom_by_hour_utc": ready.by_hour,
        "free_gpus": round(float(capacity.free.mean()), 3),
        "stretches": ready.stretches,
        "history_days": cluster.history_days,
    }
    about = Subject(cluster.name, "", "Fleet", cluster.name)
    yield _build_finding(
        "excess_headroom", about, window, details, hours, capacity.usd_h, assumed,
        claims=(_build_claim(cluster, hours, capacity.usd_h),),
        gpus=_state_headroom(ready, cluster, keep),
        low=round(float(keep.min()), 1), high=round(float(keep.max()), 1),
        ratio=ready.critical_ratio, lead=format_duration(ready.lead_s),
        also=_describe_served(cluster),
    )  # fmt: skip


def compute_kept(cluster: ClusterDemand, capacity: ClusterCapacity, ready: Headroom) -> Doubles:
    """Return the GPUs to keep free by hour of the week (UTC): the lower limit of any scale-in.

    The maximum of two figures: the recommended head-room in addition to the demand that waits now,
    and tomorrow's expected demand minus today's allocation at that hour.
    """
    keep: Doubles = np.array(ready.by_week_hour) + cluster.waiting_gpus
    expected = _expect_demand(cluster)
    if expected is None:
        return keep
    allocated = np.full(DAY_HOURS, capacity.gpus - capacity.free.mean())
    of_day = capacity.hours.astype(int) % DAY_HOURS
    for hour in np.unique(of_day):
        allocated[hour] = capacity.gpus - capacity.free[of_day == hour].mean()
    growth: Doubles = np.maximum(keep, np.tile(expected - allocated, len(keep) // DAY_HOURS))
    return growth


def _find_week_hours(capacity: ClusterCapacity) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    """Return the hours of the week of a cluster's hours, from Monday; the epoch is a Thursday."""
    return (capacity.hours.astype(np.int64) + 3 * DAY_HOURS) % WEEK_HOURS


def _describe_served(cluster: ClusterDemand) -> str:
    """Describe the other uses of the GPUs that are kept."""
    waiting = f", {cluster.waiting_gpus:g} that pods wait for" if cluster.waiting_gpus else ""
    return waiting + ("" if _expect_demand(cluster) is None else ", and the median of tomorrow")


def _expect_demand(cluster: ClusterDemand) -> Doubles | None:
    """Return tomorrow's median of all queues by hour (UTC); None = no forecast."""
    whole = _find_whole_forecast(cluster)
    return None if whole is None or whole.refused else np.array(whole.quantiles["0.5"])


def _find_whole_forecast(cluster: ClusterDemand) -> DemandForecast | None:
    """Return the forecast of all queues, or of the only one."""
    return cluster.forecasts.get("(all)") or next(iter(cluster.forecasts.values()), None)


def _state_headroom(ready: Headroom, cluster: ClusterDemand, keep: Doubles) -> float:
    """Return the one figure to keep: the quantile plus the waiting demand, or the growth."""
    usual = ready.gpus + cluster.waiting_gpus
    grows = keep.max() > max(ready.by_week_hour) + cluster.waiting_gpus
    return round(max(usual, float(keep.max()) if grows else 0.0), 1)


def _find_reservation_waste(
    cluster: ClusterDemand,
    model: str,
    reserved: ReservedGpus,
    window: Window,
    settings: DemandSettings,
) -> Iterator[Finding]:
    hours = round(float(reserved.misplaced.sum()), 6)
    if hours < max(settings.min_gpu_hours, 1e-6):
        return
    price = cluster.capacity.usd_h if cluster.capacity else None
    details = {
        "why": f"{reserved.misplaced.mean():.1f} reserved GPUs were free on average while others "
        "of the model were paid by the hour",
        **describe_coverage(reserved),
    }
    about = Subject(cluster.name, "", "Fleet", model, models=(model,))
    yield _build_finding(
        "unused_reservation", about, window, details, hours, price, [],
        claims=(_build_claim(cluster, hours, price),), model=model,
    )  # fmt: skip


def _find_base(  # noqa: PLR0917  (one caller)
    cluster: ClusterDemand,
    model: str,
    reserved: ReservedGpus,
    ratio: float,
    window: Window,
    settings: DemandSettings,
) -> Iterator[Finding]:
    gpus = count_to_reserve(reserved.other, ratio)
    price = cluster.capacity.usd_h if cluster.capacity else None
    hours = compute_saved_hours(reserved.other, gpus, ratio)
    if gpus < 1 or price is None or len(reserved.other) < settings.least_days * 24:
        return
    details = {
        "why": f"{gpus} GPUs by the hour were held more than {ratio:.0%} of {len(reserved.other)} "
        "hours",
        "break_even_utilisation": round(ratio, 4),
        "reserve_gpus": gpus,
        "saved_usd_in_window": float(compute_dollars(max(hours, 0), price)),
        **describe_coverage(reserved),
    }
    about = Subject(cluster.name, "", "Fleet", model, models=(model,))
    yield _build_finding(
        "uncovered_base", about, window, details, 0.0, None, [], gpus=gpus, model=model, ratio=ratio
    )


def _find_above(
    cluster: ClusterDemand, capacity: ClusterCapacity, window: Window
) -> Iterator[Finding]:
    whole, median = _find_whole_forecast(cluster), _expect_demand(cluster)
    if whole is None or median is None or median.max() <= capacity.gpus:
        return
    hour = cluster.next_day + timedelta(hours=int(median.argmax()))
    details = {
        "why": f"the median forecast for {hour:%Y-%m-%dT%H}Z is {median.max():.1f} GPUs of "
        f"{capacity.gpus:.0f}",
        "skill": whole.skill,
        "quantiles": whole.quantiles,
    }
    about = Subject(cluster.name, "", "Fleet", cluster.name)
    yield _build_finding(
        "demand_above_capacity", about, window, details, 0.0, None, [],
        peak=float(median.max()), hour=f"{hour:%H}:00 UTC", gpus=capacity.gpus,
    )  # fmt: skip


def _find_quarter(cluster: ClusterDemand, window: Window) -> Iterator[Finding]:
    """Yield what to buy or give back for the next quarter; nothing while today's number may do."""
    plan = cluster.quarter
    if plan is None or plan.refused or plan.change == 0:
        return
    kind = "quarter_growth" if plan.change > 0 else "quarter_surplus"
    details = {
        "why": f"{plan.quantile:.0%} of the hours of the quarter from {plan.start} need at most "
        f"{plan.need:.1f} GPUs ({plan.low:.1f} to {plan.high:.1f} in 80 % of the futures), "
        f"{plan.capacity:.1f} are there",
        "quarter": msgspec.to_builtins(plan),
        "wait_targets": msgspec.to_builtins(cluster.waits),
    }
    about = Subject(cluster.name, "", "Fleet", cluster.name)
    yield _build_finding(
        kind, about, window, details, 0.0, None, [],
        change=abs(plan.change), low=abs(plan.change_low), high=abs(plan.change_high),
        start=plan.start.isoformat(), usd=_describe_cost(plan.usd_month),
    )  # fmt: skip


def _describe_cost(usd_month: float | None) -> str:
    return "no price is known" if usd_month is None else f"{abs(usd_month):,.0f} USD a month"


def describe_coverage(reserved: ReservedGpus) -> dict[str, float | None]:
    """Return coverage and utilisation as a document."""
    coverage, used = reserved.coverage, reserved.utilisation
    return {
        "coverage": None if coverage is None else round(coverage, 4),
        "utilisation": None if used is None else round(used, 4),
        "reserved_gpus": round(float(reserved.paid.mean()), 3),
        "by_the_hour_gpus": round(float(reserved.other.mean()), 3),
    }


def _build_finding(  # noqa: PLR0917  (one call per kind)
    kind: str,
    about: Subject,
    window: Window,
    details: Mapping[str, Any],
    gpu_hours: float,
    usd_h: float | None,
    assumed: list[str],
    *,
    claims: tuple[Claim, ...] = (),
    **words: Any,
) -> Finding:
    advice = read_advice(ANALYZER)[kind].fill(words)
    days = Decimal(repr(window.seconds / 86_400))
    usd = None if usd_h is None else compute_dollars(gpu_hours, usd_h)
    return FindingKey(ANALYZER, kind, about, window).build(
        evidence="suspected" if assumed or not gpu_hours else "confirmed",
        confidence=0.6 if assumed or not gpu_hours else 0.9,
        gpu_hours=gpu_hours,
        usd=usd,
        details={**details, "assumed": assumed},
        recommendations=(
            Recommendation(
                verb=advice.verb,
                target=f"{about.workload_kind}/{about.workload}",
                why=advice.why,
                reversible=kind != "uncovered_base",
                undo=advice.undo,
                gpu_hours_per_day=round(gpu_hours / float(days), 4),
                usd_per_day=None if usd is None else (usd / days).quantize(CENT, ROUND_DOWN),
                caution=advice.caution,
                saving=advice.saving,
                effort=advice.effort,
                claims=claims,
            ),
        ),
    )


def _build_claim(cluster: ClusterDemand, hours: float, usd_h: float | None) -> Claim:
    usd = None if usd_h is None else compute_dollars(hours, usd_h)
    return Claim(cluster.name, None, None, None, None, "free", hours, usd)
