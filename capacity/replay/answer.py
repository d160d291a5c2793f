"""Answer a what-if: the past as it was, the same past with other settings, and the difference."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Literal

import msgspec

from capacity.history.queue_history import QueueHistory, read_history
from capacity.replay.calibration import Calibration, judge_replay
from capacity.replay.changes import PolicyChange, PoolChange, SiteChange
from capacity.replay.measures import ReplayMeasures, TeamMeasures, measure_replay
from capacity.replay.past import PastSite, build_past
from capacity.replay.records import ReplayResult, ReplaySite, ReplayStop
from capacity.replay.replay import replay
from fallow.gpu_models import get_model_name
from fallow.protocols import Views
from fallow.window import Window, format_duration

HOUR_S = 3600.0
MINUTE = timedelta(minutes=1)
NOTHING_H = 1e-6
"""GPU-hours that are no difference."""
STOPS = "the policy's back-test has {} stops of workloads, the replay {} stops of their units"
NOTES = (
    "arrivals and run times are those of the past, whatever the waits",
    "a pod that was created because another ended is not delayed with it",
    "evicted units start from the beginning unless their owners declare a checkpoint interval",
)
Money = Literal["cash", "released capacity", "none"]


class Dollars(msgspec.Struct, frozen=True):
    """What a setting costs or saves in the window."""

    kind: Money
    """cash: the nodes' bill changes. released capacity: a policy frees GPU-hours of the same nodes.
    none: the same nodes are paid."""
    usd: float | None
    """What `gpu_hours` cost. cash: positive = it costs more. None = a price is missing."""
    lost_work_usd: float | None
    """The change of the work that is done again, at the mean price; it is part of the bill."""
    gpu_hours: float = 0.0
    """cash: what the nodes have more. released capacity: what the replayed stops free."""


class WhatIfAnswer(msgspec.Struct, frozen=True):
    """Before and after, and whether the replay may be trusted."""

    window: Window
    scheduler: str
    calibration: Calibration
    before: ReplayMeasures
    after: ReplayMeasures
    dollars: Dollars
    notes: tuple[str, ...]


def answer_what_if(
    views: Views, window: Window, changes: Sequence[SiteChange], cluster: str | None
) -> WhatIfAnswer:
    """Return what a site's past would have been with other settings; the window in whole minutes.

    Raises:
        UsageError: a setting names what the site does not have, the window has no arrivals, or
            several clusters.
    """
    history = read_history(views, window.whole(MINUTE), cluster)
    return compare_settings(history, build_past(history), changes)


def compare_settings(
    history: QueueHistory, past: PastSite, changes: Sequence[SiteChange]
) -> WhatIfAnswer:
    """Return the past as it was and with the changes."""
    site = past.site
    for change in changes:
        site = change.apply(site)
    before = replay(past.site)
    after = replay(site)
    measures = [
        measure_replay(result, compute_entitlements(result.site)) for result in (before, after)
    ]
    stops = sum(len(c.stops) for c in changes if isinstance(c, PolicyChange))
    counted = (STOPS.format(stops, len(after.stops)),) if stops else ()
    return WhatIfAnswer(
        history.window,
        past.site.scheduler,
        judge_replay(past, before),
        measures[0],
        measures[1],
        _price(history, (before, after), measures, changes),
        (*past.notes, *counted, *NOTES),
    )


def compute_entitlements(site: ReplaySite) -> dict[str, float]:
    """Return each team's part of all quotas; empty unless each queue has one team of its own."""
    teams: dict[str, set[str]] = defaultdict(set)
    for unit in site.units:
        teams[unit.queue].add(unit.team)
    queues = [queue for queue in site.queues if not queue.is_cohort]
    total = sum(queue.nominal_milli for queue in queues)
    entitled: dict[str, float] = {}
    for queue in queues:
        members = teams.get(queue.name, set())
        if not total or len(members) > 1:
            return {}
        for team in members:
            entitled[team] = entitled.get(team, 0.0) + queue.nominal_milli / total
    return entitled


def build_team_rows(answer: WhatIfAnswer) -> list[dict[str, Any]]:
    """Return a row per team, and one for all: waits in seconds before and after."""
    after = {team.team: team for team in answer.after.teams}
    return [
        {"team": team.team, **_build_columns(team, after[team.team])}
        for team in answer.before.teams
    ]


def write_durations(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row for people: seconds as durations, such as 12h3m."""
    return {
        name.removesuffix("_s"): format_duration(value)
        if name.endswith("_s") and value is not None
        else value
        for name, value in row.items()
    }


def describe_what_if(answer: WhatIfAnswer) -> dict[str, Any]:
    """Return the body of `fallow.what-if/v1` without its rows by team."""
    return {
        "window": answer.window,
        "scheduler": answer.scheduler,
        "calibration": answer.calibration,
        "before": _describe_measures(answer.before),
        "after": _describe_measures(answer.after),
        "dollars": answer.dollars,
        "currency": "USD",
        "notes": list(answer.notes),
    }


def describe_difference(answer: WhatIfAnswer) -> str:
    """Return the difference in a sentence."""
    before, after = answer.before, answer.after
    parts = [
        f"wait p50 {_format_s(before.waits.p50_s)} -> {_format_s(after.waits.p50_s)}",
        f"p95 {_format_s(before.waits.p95_s)} -> {_format_s(after.waits.p95_s)}",
        f"utilisation {_format_part(before.utilisation)} -> {_format_part(after.utilisation)}",
        f"preemptions {before.preemptions} -> {after.preemptions}",
    ]
    return ", ".join(parts)


def describe_dollars(dollars: Dollars) -> str:
    """Return the dollars in a sentence."""
    if dollars.kind == "none":
        return "dollars: none; the same nodes are paid"
    if dollars.usd is None:
        return f"dollars: {dollars.kind}, unknown: a price is missing in the window"
    if dollars.kind == "released capacity":
        return (
            f"dollars: released capacity, {dollars.usd:,.2f} USD of {dollars.gpu_hours:,.1f}"
            " GPU-hours; the same nodes are paid"
        )
    change = "more" if dollars.usd > 0 else "less"
    return f"dollars: cash, the bill of the window is {abs(dollars.usd):,.2f} USD {change}"


def _build_columns(before: TeamMeasures, after: TeamMeasures) -> dict[str, Any]:
    return {
        "jobs": before.units,
        "wait_p50_s": before.waits.p50_s,
        "wait_p50_after_s": after.waits.p50_s,
        "wait_p95_s": before.waits.p95_s,
        "wait_p95_after_s": after.waits.p95_s,
        "completion_s": before.completion_mean_s,
        "completion_after_s": after.completion_mean_s,
        "gpu_hours": before.gpu_hours,
        "gpu_hours_after": after.gpu_hours,
        "preemptions": before.preemptions,
        "preemptions_after": after.preemptions,
    }


def _describe_measures(measures: ReplayMeasures) -> dict[str, Any]:
    described: dict[str, Any] = msgspec.to_builtins(measures)
    return described


def _price(
    history: QueueHistory,
    results: Sequence[ReplayResult],
    measures: Sequence[ReplayMeasures],
    changes: Sequence[SiteChange],
) -> Dollars:
    rates = {get_model_name(rate.gpu_model) or "": rate.usd_h for rate in history.rates}
    hours = _sum_model_hours(results[1].site)
    for model, amount in _sum_model_hours(results[0].site).items():
        hours[model] -= amount
    changed = {model: amount for model, amount in hours.items() if abs(amount) > NOTHING_H}
    usd = (
        sum(rates[model] * amount for model, amount in changed.items())
        if changed.keys() <= rates.keys()
        else None
    )
    mean = sum(rates.values()) / len(rates) if rates else None
    lost = measures[1].lost_gpu_hours - measures[0].lost_gpu_hours
    lost_usd = None if mean is None else mean * lost
    if any(isinstance(change, PoolChange) for change in changes):
        return Dollars("cash", usd, lost_usd, sum(changed.values()))
    if any(isinstance(change, PolicyChange) for change in changes):
        released = _sum_prices(results[1].stops)
        return Dollars("released capacity", released, lost_usd, measures[1].released_gpu_hours)
    return Dollars("none", 0.0, lost_usd)


def _sum_prices(stops: Sequence[ReplayStop]) -> float | None:
    """Return the dollars of all stops; None = one has no price."""
    prices = [stop.usd for stop in stops if stop.usd is not None]
    return sum(prices) if len(prices) == len(stops) else None


def _sum_model_hours(site: ReplaySite) -> dict[str, float]:
    hours: dict[str, float] = defaultdict(float)
    for node in site.nodes:
        length_s = min(node.closes_s, site.end_s) - max(node.opens_s, site.start_s)
        hours[node.capacity.gpu_model] += max(0.0, length_s) * node.gpu_milli / 1000 / HOUR_S
    return hours


def _format_s(seconds: float | None) -> str:
    return "unknown" if seconds is None else format_duration(seconds)


def _format_part(part: float | None) -> str:
    return "unknown" if part is None else f"{part:.1%}"
