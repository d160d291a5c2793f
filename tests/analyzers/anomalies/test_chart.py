"""The chart against its published run lengths, and the arithmetic of a change against itself."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzers.anomalies.control_chart import (
    BESIDE,
    WEEK,
    compute_expected,
    compute_innovations,
    find_alarms,
    find_episodes,
    run_cusum,
)
from analyzers.anomalies.effects import AllocatedHours, ModelChange, round_to_cents, split_effects


@pytest.mark.parametrize(
    ("shift", "length"),
    [(0.0, 465.0), (0.5, 38.0), (1.0, 10.4), (2.0, 4.01), (3.0, 2.57)],
)
def test_average_run_lengths_are_those_of_the_textbook(shift: float, length: float) -> None:
    """Two-sided CUSUM, slack 0.5, limit 5.

    Source: telemetry-and-waste.md#anomalies; Lucas and Crosier 1982.
    """
    runs = 1500
    score = np.random.default_rng(7).normal(shift, 1, (runs, 1 if not length else int(length * 9)))
    _, _, alarms = run_cusum(score, 0.5, 5.0)
    assert alarms.any(axis=1).mean() > 0.99
    first = np.where(alarms.any(axis=1), alarms.argmax(axis=1) + 1, alarms.shape[1])
    assert first.mean() == pytest.approx(length, rel=0.09)


def test_an_hour_not_seen_neither_alarms_nor_calms() -> None:
    seen = np.array([[2.0, 2.0, 2.0, 2.0]])
    gaps = np.array([[2.0, np.nan, 2.0, np.nan, np.nan, 2.0, 2.0]])
    _, _, whole = run_cusum(seen, 0.5, 5.0)
    _, _, parted = run_cusum(gaps, 0.5, 5.0)
    assert np.flatnonzero(whole[0]).tolist() == [3]
    assert np.flatnonzero(parted[0]).tolist() == [6]


def test_noise_seldom_alarms_and_a_shift_soon_does() -> None:
    rng = np.random.default_rng(11)
    first = 8 * WEEK + BESIDE
    values = rng.normal(100, 10, (60, first + 2 * WEEK))
    expected = compute_expected(values, first, 8, 3)
    quiet = find_alarms(expected, 3.5, 0.5, 5.0)
    assert quiet.up.mean() + quiet.down.mean() < 0.05
    values[:, first + WEEK :] += 20
    alarms = find_alarms(compute_expected(values, first, 8, 3), 3.5, 0.5, 5.0)
    assert alarms.up[:, WEEK : WEEK + 24].any(axis=1).mean() > 0.95


def test_what_lasts_for_hours_is_not_news_every_hour() -> None:
    """Jobs last: an hour resembles the one before it. Charts that forget that cry all day."""
    rng = np.random.default_rng(5)
    first = 8 * WEEK + BESIDE
    noise = rng.normal(0, 1, (40, first + 2 * WEEK))
    values = np.empty_like(noise)
    values[:, 0] = noise[:, 0]
    for hour in range(1, values.shape[1]):
        values[:, hour] = 0.9 * values[:, hour - 1] + np.sqrt(1 - 0.81) * noise[:, hour]
    expected = compute_expected(100 + 10 * values, first, 8, 3)
    assert np.median(expected.rho) == pytest.approx(0.86, abs=0.05)
    _, _, naive = run_cusum(expected.score, 0.5, 5.0)
    _, _, alarms = run_cusum(compute_innovations(expected.score, expected.rho), 0.5, 5.0)
    assert alarms.sum() < naive.sum() / 5


def test_episodes_join_what_is_near() -> None:
    marks = np.zeros(100, dtype=bool)
    marks[[3, 4, 20, 60]] = True
    assert find_episodes(marks, 24) == [(3, 21), (60, 61)]


hours = st.integers(0, 10**12).map(lambda us: Fraction(us, 3_600_000_000))
dollars = st.integers(0, 10**12).map(lambda u: Fraction(u, 100_000_000))
parts = st.builds(
    lambda q0, u0, q1, u1: ModelChange(q0, u0 if q0 else Fraction(), q1, u1 if q1 else Fraction()),
    hours, dollars, hours, dollars,
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(st.lists(parts, max_size=5), st.one_of(st.none(), st.builds(AllocatedHours, hours, hours)))
def test_the_parts_of_a_change_sum_exactly_to_it(
    some: list[ModelChange], held: AllocatedHours | None
) -> None:
    made = split_effects(some, held)
    change = sum((p.usd - p.usd_before for p in some), Fraction())
    assert sum(made.values(), Fraction()) == change
    cents, total = round_to_cents(made)
    assert sum(cents.values()) == total
    assert abs(Fraction(total) - change) <= Fraction(1, 200)


@pytest.mark.parametrize(
    ("some", "made"),
    [
        # 10 hours at 2, then 15 at 2: quantity alone.
        ([(10, 20, 15, 30)], {"quantity": 10, "mix": 0, "price": 0}),
        # The price rises by 1; the joint term is price's.
        ([(10, 20, 15, 45)], {"quantity": 10, "mix": 0, "price": 15}),
        # As many hours, all on the model that costs twice as much, known before.
        ([(10, 20, 5, 10), (10, 40, 15, 60)], {"quantity": 0, "mix": 10, "price": 0}),
        # A model never held before: it has no old price, so it is mix.
        ([(10, 20, 0, 0), (0, 0, 10, 50)], {"quantity": 0, "mix": 30, "price": 0}),
        # A team that had nothing: all of it is quantity.
        ([(0, 0, 10, 50)], {"quantity": 50, "mix": 0, "price": 0}),
    ],
)
def test_effects_by_hand(some: list[tuple[int, int, int, int]], made: dict[str, int]) -> None:
    assert split_effects([ModelChange(*map(Fraction, p)) for p in some]) == made


def test_waste_is_parted_into_hours_held_and_their_wasted_share() -> None:
    # 100 held, 10 wasted at 2; then 200 held, 60 wasted at 2.
    part = ModelChange(*map(Fraction, (10, 20, 60, 120)))
    made = split_effects([part], AllocatedHours(Fraction(100), Fraction(200)))
    assert made == {"held": 20, "wasted share": 80, "mix": 0, "price": 0}
