"""The next quarter's GPUs, and what a target of the wait costs: demand whose answer is known."""

from datetime import date, timedelta
from math import ceil, inf

import numpy as np
import pytest

from analyzers.demand.quarter import QUARTER_DAYS, plan_quarter
from analyzers.demand.wait_replay import GangRequest, price_targets, replay_waits

MONDAY = date(2026, 8, 3)


def build_demand(
    days: int, *, level: float = 100, trend: float = 0.0, noise: float = 0.0, seed: int = 0,
    holidays: frozenset[date] = frozenset(), first: date = MONDAY,
) -> np.ndarray:  # fmt: skip
    """Return hourly demand: by day 1.2, by night 0.8 of the day's mean; half of it at rest."""
    rng = np.random.default_rng(seed)
    hours = []
    for n in range(days):
        day = first + timedelta(days=n)
        rests = day.weekday() >= 5 or day in holidays
        mean = (level + trend * n) * (0.5 if rests else 1.0) * (1 + noise * rng.standard_normal())
        hours += [mean * (1.2 if 8 <= hour < 20 else 0.8) for hour in range(24)]
    return np.array(hours)


def test_demand_that_repeats_needs_what_it_needed() -> None:
    """95 % of hours fit into the working day's 120 GPUs; 150 are there: 30 to give back."""
    plan = plan_quarter(build_demand(56), MONDAY, 150, 2.0, quantile=0.95)
    assert (plan.refused, plan.history_days) == (None, 56)
    assert plan.start == MONDAY + timedelta(days=56)
    assert plan.need == plan.low == plan.high == pytest.approx(120, abs=0.01)
    assert (plan.change, plan.usd_month) == (-30, -30 * 2.0 * 730)


def test_growth_is_carried_on_and_its_gpus_are_bought() -> None:
    """The level grows by one GPU a day, to 247 at the quarter's end."""
    plan = plan_quarter(build_demand(56, trend=1), MONDAY, 150, None, quantile=0.95)
    truth = np.quantile(build_demand(56 + QUARTER_DAYS, trend=1)[56 * 24 :], 0.95)
    assert plan.trend_gpus_per_week == pytest.approx(6, rel=0.02)
    assert plan.need == pytest.approx(truth, rel=0.05)
    assert plan.change == ceil(plan.need - 150)
    assert plan.usd_month is None


def test_nothing_is_bought_while_the_interval_holds_the_capacity() -> None:
    demand = build_demand(56, noise=0.2, seed=3)
    plan = plan_quarter(demand, MONDAY, 150, 2.0, quantile=0.95)
    assert plan.low < 150 < plan.high
    assert (plan.change, plan.usd_month) == (0, 0.0)
    assert plan.change_low < 0 < plan.change_high


def draw_levels(kind: str, weeks: int, rng: np.random.Generator) -> np.ndarray:
    """Return a weekly level: constant, growing or shrinking, wandering, or of regimes."""
    if kind == "regimes":
        jumps = rng.random(weeks) < 0.15
        return np.concatenate([[100.0], rng.uniform(70, 130, weeks)])[
            np.maximum.accumulate(np.where(jumps, np.arange(1, weeks + 1), 0))
        ]
    changes = {"constant": np.zeros(weeks), "trend": np.full(weeks, rng.uniform(-2, 3)),
               "walk": 4 * rng.standard_normal(weeks)}[kind]  # fmt: skip
    level: np.ndarray = np.maximum(100 + np.cumsum(changes), 0)
    return level


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kinds", "weeks", "most"),
    [
        (("walk", "regimes"), (8, 12, 26), 170),
        (("constant", "trend", "walk", "regimes"), (8, 12), 170),
        # No past proves that a level stays: a constant one is nearly always within the interval,
        # and of 26 weeks 96 % of these are.
        (("constant", "trend"), (8, 12), 180),
    ],
    ids=["with a change", "any", "without a change"],
)
def test_the_interval_holds_the_truth_of_80_percent_of_200_drawn_pasts(
    kinds: tuple[str, ...], weeks: tuple[int, ...], most: int
) -> None:
    """The next 13 weeks are not seen; noise of 5 to 20 % a day."""
    hits = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        days = 7 * weeks[seed // len(kinds) % len(weeks)]
        level = np.repeat(draw_levels(kinds[seed % len(kinds)], (days + QUARTER_DAYS) // 7, rng), 7)
        noise = 1 + rng.uniform(0.05, 0.2) * rng.standard_normal(len(level))
        whole = build_demand(len(level), level=1) * np.repeat(np.maximum(level * noise, 0), 24)
        plan = plan_quarter(whole[: days * 24], MONDAY, 1, None, quantile=0.95)
        hits += plan.low <= np.quantile(whole[days * 24 :], 0.95) <= plan.high
    assert 150 <= hits <= most


@pytest.mark.parametrize(("days", "refused"), [(27, True), (28, False)])
def test_less_than_four_weeks_plan_no_quarter(days: int, refused: bool) -> None:
    plan = plan_quarter(build_demand(days), MONDAY, 100, 2.0, quantile=0.95)
    assert (plan.refused == f"{days} days of history: 28 are needed") is refused


def test_holidays_need_less_and_the_calendar_says_so() -> None:
    """Of the quarter 84 of 91 days are holidays: of its hours fewer than 5 % peak at 120."""
    start = MONDAY + timedelta(days=56)
    coming = frozenset(start + timedelta(days=n) for n in range(QUARTER_DAYS - 7))
    plan = plan_quarter(build_demand(56), MONDAY, 120, 2.0, quantile=0.95, holidays=coming)
    assert plan.holidays == 84
    assert plan.need == pytest.approx(120 * 0.8, rel=0.2)
    without = plan_quarter(build_demand(56), MONDAY, 120, 2.0, quantile=0.9)
    rested = plan_quarter(build_demand(56), MONDAY, 120, 2.0, quantile=0.9, holidays=coming)
    assert without.need == pytest.approx(120)
    assert rested.need == pytest.approx(60)


def request(created_h: float, gpus: float, run_h: float, waited_h: float | None = 0) -> GangRequest:
    waited = None if waited_h is None else waited_h * 3600
    return GangRequest(created_h * 3600, gpus, run_h * 3600, waited)


@pytest.mark.parametrize(
    ("gpus", "hours"),
    [
        (8, [0, 1, 2]),
        (16, [0, 0, 1]),
        (24, [0, 0, 0]),
        (7, [inf, inf, inf]),
    ],
)  # fmt: skip
def test_three_jobs_of_eight_wait_for_each_other(gpus: int, hours: list[float]) -> None:
    """Each runs for one hour and comes at the same time."""
    waits = replay_waits([request(0, 8, 1)] * 3, gpus)
    assert waits == [hour * 3600 for hour in hours]


def test_a_small_job_passes_one_that_does_not_fit() -> None:
    """6 of 8 are taken for two hours: 4 wait for them, 2 start at once."""
    waits = replay_waits([request(0, 6, 2), request(0.5, 4, 1), request(1, 2, 1)], 8)
    assert waits == [0, 1.5 * 3600, 0]


def test_a_target_of_the_wait_is_priced_in_gpus_and_dollars() -> None:
    """40 pairs, one each day: each pair of 8 GPUs for an hour. 8 GPUs: every second waits an hour.

    16 GPUs: nobody waits. So a p95 of 5 minutes takes 8 more: 8 x 730 h x 2 USD = 11,680.
    """
    pairs = [request(24 * day, 8, 1, waited) for day in range(40) for waited in (0, 1)]
    found = price_targets(pairs, 8, 2.0, [300, 3600])
    assert (found.refused, found.p95_s, found.replayed_p95_s, found.trusted) == (
        None, 3600, 3600, True,
    )  # fmt: skip
    short, long = found.targets
    assert (short.gpus, short.more_gpus, short.p95_s, short.usd_month) == (16, 8, 0, 11_680.0)
    assert (long.gpus, long.more_gpus, long.p95_s, long.usd_month) == (8, 0, 3600, 0.0)


def test_waits_of_requests_that_still_wait_are_no_part_of_the_target() -> None:
    """One of 16 GPUs that nobody has started would wait for ever on 8: it is not measured."""
    begun = [request(24 * day, 8, 1) for day in range(40)]
    waiting = [request(24 * day + 12, 16, 1, None) for day in range(10)]
    [target] = price_targets([*begun, *waiting], 8, 2.0, [300]).targets
    assert (target.gpus, target.p95_s) == (8, 0)


@pytest.mark.parametrize(("waits", "trusted"), [(1.1, True), (1.12, False)])
def test_a_replay_that_does_not_give_the_past_is_marked(waits: float, trusted: bool) -> None:
    pairs = [request(24 * day, 8, 1, waited) for day in range(40) for waited in (0, waits)]
    found = price_targets(pairs, 8, 2.0, [300])
    assert found.trusted is trusted
    assert bool(found.why) is not trusted


@pytest.mark.parametrize(("count", "refused"), [(29, True), (30, False)])
def test_too_few_waits_price_nothing(count: int, refused: bool) -> None:
    waiting = [request(0, 1, 1, None)] * 5
    found = price_targets([request(0, 1, 1)] * count + waiting, 8, 2.0, [300])
    assert (found.refused == f"{count} waits: 30 are needed") is refused
