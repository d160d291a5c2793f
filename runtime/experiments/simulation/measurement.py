"""Measure enforcement: by the world's truth, against an oracle, and by its own ledger."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from actions.savings.action_selection import select_actions
from actions.savings.measurement import measure_savings, predict_savings
from fallow.action_models import LedgerEntry
from fallow.window import Window
from runtime.experiments.simulation import harm
from runtime.experiments.simulation.enforcer import Enforcer, SimulatedAdmin
from runtime.experiments.simulation.harm import EarlyReturns, OwnerCare
from runtime.experiments.simulation.idle_times import IdleTime
from runtime.experiments.simulation.options import Options
from runtime.experiments.simulation.oracle import Release, list_releases
from runtime.experiments.simulation.promises import PromiseComparison, compare
from runtime.experiments.simulation.tally import HOUR_S, Tally
from runtime.experiments.simulation.turns import NO_CASE, ActorTurn, count_gates
from runtime.operations.accounting import pipeline
from simulator.world import WorkloadStop, World
from warehouse.pricing import derive_device_rates


class CategoryShare(msgspec.Struct, frozen=True):
    """The share of one category."""

    oracle_gpu_hours: float
    released_gpu_hours: float
    stops: int
    missed: int
    """Workloads that the oracle releases and enforcement never released."""
    gates: dict[str, int]
    """Of these: which gate blocked them, and for how many turns; see `turns.NO_CASE`."""


class StopRecord(msgspec.Struct, frozen=True):
    """One stop, by the world's truth."""

    workload: str
    category: str
    policy: str
    at: datetime
    gpus: float
    wanted_after_h: float | None
    """Hours until its owner had it back or requested it; null = not before the end."""
    causes: tuple[str, ...]
    """Why it did harm; empty = it did none."""


class EnforcementResult(msgspec.Struct, frozen=True):
    """What enforcement did: by the world's truth, and by its own ledger."""

    policies: tuple[str, ...]
    actions: int
    precision: float
    recall: float
    harm: dict[str, Any]
    early_returns: dict[str, EarlyReturns]
    """By policy; `*` is all of them."""
    released_gpu_hours: float
    """By the truth: of stops without harm, until the owner needs or deletes it, or the end."""
    oracle_gpu_hours: float
    """By the truth: what an oracle releases that waits as long as the policies."""
    released_share: float | None
    """The released GPU-hours over the oracle's."""
    oracle_shared_gpu_hours: float
    """The oracle's part on time-sliced devices, which are reported and never acted upon."""
    by_category: dict[str, CategoryShare]
    """By row of the mix: what the oracle releases, what was released, and what blocked the rest."""
    predicted_gpu_hours: float
    """By the ledger: the expectation from past stretches."""
    predicted_interval: tuple[float, float]
    """The range that should contain the true value nine times in ten."""
    saved_gpu_hours: float
    """By the ledger: what its devices did afterwards, minus the restart."""
    saved_usd: dict[str, float]
    """The same in dollars, by kind."""
    true_gpu_hours: float
    """By the truth: until its owner would have had it back, or deleted it."""
    refused: int
    taken_back: int
    open: int
    admin: SimulatedAdmin
    backtest: PromiseComparison
    stops: tuple[StopRecord, ...]


def measure_enforcement(
    enforcer: Enforcer,
    tally: Tally,
    window: Window,
    options: Options,
    idle_times: Sequence[IdleTime],
) -> tuple[EnforcementResult, dict[str, float]]:
    """Compare the stops with the truth, and return the ledger's savings beside it.

    The true saving is the GPU-hours from a stop until its owner started it again, would have
    deleted it, or the end.
    """
    world = enforcer.world
    # Signals as the service wrote them during the run: later accounting would know more.
    promises = _compare_promises(enforcer, window)
    pipeline.account(enforcer.warehouse, window)
    now = enforcer.now()
    record = enforcer.record.catch_up()
    prices = derive_device_rates(enforcer.warehouse, Window(window.start, now)).to_pylist()
    acted = select_actions(record)
    entries = measure_savings(enforcer.warehouse, acted, prices, now)
    predicted = predict_savings(enforcer.warehouse, acted, now)
    stops = harm.join_care(world.stops, record)
    hours = {id(s): s.gpus * (_find_idle_end_s(world, s) - s.at_s) / HOUR_S for s in world.stops}
    causes = [harm.find_causes(stop, care) for stop, care in stops]
    right = [s for (s, _), why in zip(stops, causes, strict=True) if s.idle and not why]
    released = sum(hours[id(s)] for s in right)
    best = list_releases(
        idle_times,
        enforcer.policies,
        list(list_turns(options, enforcer.settings.idle.min_duration)),
        options.end_s,
        idle=enforcer.settings.idle,
    )
    most = sum(r.gpu_hours for r in best)
    usd = _sum_usd(entries)
    remaining = tally.hours("idle")
    states = list(record.actions.values())
    result = EnforcementResult(
        policies=tuple(p.name for p in enforcer.policies),
        actions=len(world.stops),
        precision=round(len(right) / len(world.stops), 5) if world.stops else 1.0,
        recall=round(released / (released + remaining), 5) if released + remaining else 1.0,
        harm=_count_harm(world, causes),
        early_returns=harm.count_returns(stops, enforcer.policies),
        released_gpu_hours=round(released, 3),
        oracle_gpu_hours=round(most, 3),
        released_share=round(released / most, 4) if most else None,
        oracle_shared_gpu_hours=round(sum(r.gpu_hours for r in best if r.shared), 3),
        by_category=_compute_share_by_category(world, right, hours, best, enforcer.turns),
        predicted_gpu_hours=round(predicted.gpu_hours, 3),
        predicted_interval=(round(predicted.low, 3), round(predicted.high, 3)),
        saved_gpu_hours=round(sum(e.gpu_hours for e in entries), 3),
        saved_usd=dict(sorted(usd.items())),
        true_gpu_hours=round(sum(hours.values()), 3),
        refused=sum(not t.has_written for t in states),
        taken_back=sum(t.restored is not None for t in states),
        open=sum(t.is_open for t in states),
        admin=enforcer.admin,
        backtest=promises,
        stops=_list_stops(world, stops, causes),
    )
    rates = {r["device"]: float(r["loaded_usd_h"]) for r in prices if r["loaded_usd_h"] is not None}
    return result, rates


def _sum_usd(entries: Sequence[LedgerEntry]) -> dict[str, float]:
    """Return the dollars saved by kind, in cents."""
    usd: dict[str, float] = {}
    for entry in entries:
        usd[entry.kind] = round(usd.get(entry.kind, 0.0) + float(entry.usd or 0), 2)
    return usd


def _count_harm(world: World, causes: Sequence[Sequence[str]]) -> dict[str, Any]:
    """Count the harmful stops, their causes, and the lost work."""
    return {
        "harmful_stops": sum(bool(why) for why in causes),
        "causes": {c: sum(c in why for why in causes) for c in harm.CAUSES},
        "lost_gpu_hours": round(sum(s.lost_gpu_s for s in world.stops) / HOUR_S, 3),
    }


def _list_stops(
    world: World,
    stops: Sequence[tuple[WorkloadStop, OwnerCare]],
    causes: Sequence[Sequence[str]],
) -> tuple[StopRecord, ...]:
    """Return every stop with its policy, when its owner needed it back, and why it did harm."""
    return tuple(
        StopRecord(
            workload="/".join(stop.key),
            category=world.cast.roles[stop.key].arrival.category.category,
            policy=care.policy,
            at=datetime.fromtimestamp(stop.at_s, UTC),
            gpus=stop.gpus,
            wanted_after_h=None
            if stop.back_s is None
            else round((stop.back_s - stop.at_s) / HOUR_S, 2),
            causes=tuple(why),
        )
        for (stop, care), why in zip(stops, causes, strict=True)
    )


def _compare_promises(enforcer: Enforcer, window: Window) -> PromiseComparison:
    """Return whether the service did what its backtest promises."""
    if not enforcer.turns:
        return PromiseComparison(0, 0, 0, 0, [], {})
    return compare(
        enforcer.warehouse,
        enforcer.settings,
        enforcer.policies,
        enforcer.turns,
        window.start,
        lag=timedelta(seconds=enforcer.sample_every_s),
        analyzers=enforcer.analyzers,
    )


def _compute_share_by_category(
    world: World,
    right: Sequence[WorkloadStop],
    hours: dict[int, float],
    best: Sequence[Release],
    turns: Sequence[ActorTurn],
) -> dict[str, CategoryShare]:
    """Return each category's share, by what the oracle releases, then by name."""
    roles = world.cast.roles
    own_stops = defaultdict(list)
    for stop in right:
        own_stops[roles[stop.key].arrival.category.category].append(stop)
    oracle_releases = defaultdict(list)
    for release in best:
        oracle_releases[release.category].append(release)
    shares = {}
    for category in sorted({*own_stops, *oracle_releases}):
        stopped = {s.key for s in own_stops[category]}
        missed = {r.key for r in oracle_releases[category]} - stopped
        ruled_keys = {ruled.key for turn in turns for ruled in turn.rulings} & missed
        gates = count_gates(turns, missed)
        if missed - ruled_keys:
            gates[NO_CASE] = len(missed - ruled_keys)
        shares[category] = CategoryShare(
            oracle_gpu_hours=round(sum(r.gpu_hours for r in oracle_releases[category]), 3),
            released_gpu_hours=round(sum(hours[id(s)] for s in own_stops[category]), 3),
            stops=len(own_stops[category]),
            missed=len(missed),
            gates=gates,
        )
    return dict(sorted(shares.items(), key=lambda each: -each[1].oracle_gpu_hours))


def list_turns(options: Options, least: timedelta) -> Iterator[float]:
    """Yield the turns at which the actor acts: after the warm-up, before the end."""
    start_s = options.spec.start_s
    for number in range(1, int((options.end_s - start_s) // options.every_s) + 1):
        at_s = start_s + number * options.every_s
        acts = at_s - start_s > least.total_seconds() and at_s - start_s >= options.warm_up_s
        if acts and at_s < options.end_s:
            yield at_s


def _find_idle_end_s(world: World, stop: WorkloadStop) -> float:
    """Return until when a stopped workload would have held its devices idle."""
    role, end_s = world.cast.roles[stop.key], world.now_s
    leaves = end_s if role.since_s is None else role.since_s + role.arrival.life_s
    back_s = end_s if stop.back_s is None else stop.back_s
    return max(min(back_s, leaves, end_s), stop.at_s)
