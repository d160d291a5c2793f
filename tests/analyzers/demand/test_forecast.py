"""Forecasts that must earn their place, head-room and reservations at their price."""

from datetime import UTC, datetime, timedelta

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzers.demand.forecast import compute_pinball, forecast_day
from analyzers.demand.headroom import compute_critical_ratio, compute_headroom
from analyzers.demand.profiles import judge_profile
from analyzers.demand.reservations import ReservedGpus, compute_saved_hours, count_to_reserve
from analyzers.demand.rows import SimilarRuns

NOON = datetime(2026, 11, 2, tzinfo=UTC)
ONE_RUN = SimilarRuns(
    cluster="c", namespace="ml", workload_kind=None, stem="w", runs=1, gpus=1.0, run_h=10.0,
    gap_h=None, gap_spread=None, cron=False, gpu_hours=10.0, known_hours=10.0,
    busy_hours=5.0,
)  # fmt: skip


def course(
    days: int, noise: float, level: float = 0.0
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return working hours, quiet weekends, a level that drifts from day to day, and noise."""
    rng = np.random.default_rng(7)
    hours = np.arange(days * 24)
    day = hours // 24
    work = 20 * ((hours % 24 >= 8) & (hours % 24 < 18)) * (day % 7 < 5)
    drift = np.repeat(np.cumsum(rng.normal(0, level, days)), 24)
    return np.maximum(40 + work + drift + rng.normal(0, noise, len(hours)), 0)


def test_noise_around_a_calendar_beats_naive_and_is_told() -> None:
    made = forecast_day(course(42, noise=4), 0, 0.10)
    assert made.refused is None
    # Naive carries two noises, the regression nearly one: 1 - 1 / sqrt(2) = 0.29.
    assert made.skill == pytest.approx(0.25, abs=0.06)
    low, mid, high = (np.array(made.quantiles[q]) for q in ("0.1", "0.5", "0.9"))
    assert (low <= mid).all()
    assert (mid <= high).all()
    assert mid[12] == pytest.approx(60, abs=4)  # Monday noon


def test_a_level_that_drifts_is_followed() -> None:
    made = forecast_day(course(42, noise=1, level=4), 0, 0.10)
    assert made.refused is None
    assert made.skill is not None
    assert made.skill > 0.3


def test_a_forecast_no_better_than_naive_is_refused_with_its_skill() -> None:
    rng = np.random.default_rng(3)
    weekly = np.tile(rng.integers(0, 40, 168).astype(np.float64), 6)
    made = forecast_day(weekly + rng.normal(0, 0.1, len(weekly)), 0, 0.10)
    assert made.refused is not None
    assert "against seasonal-naive" in made.refused
    assert made.quantiles == {}


@pytest.mark.parametrize(
    ("days", "why"), [(20, "20 days of history: 21 are needed"), (28, "repeats this week exactly")]
)
def test_too_little_and_too_regular_are_refused(days: int, why: str) -> None:
    made = forecast_day(np.full(days * 24, 8.0), 0, 0.10)
    assert made.refused is not None
    assert why in made.refused


def test_the_back_test_knows_nothing_of_the_day_it_forecasts() -> None:
    base = course(35, noise=3)
    spoilt = base.copy()
    spoilt[-24:] = 1000
    one, other = forecast_day(base[:-24], 0, 0.0), forecast_day(spoilt[:-24], 0, 0.0)
    assert one == other


@pytest.mark.parametrize(
    ("under", "over", "ratio"), [(7, 3, 0.7), (1, 1, 0.5), (99, 1, 0.99), (0, 5, 0.0), (0, 0, 0.0)]
)
def test_the_newsvendors_critical_ratio(under: float, over: float, ratio: float) -> None:
    assert compute_critical_ratio(under, over) == pytest.approx(ratio)


def test_headroom_is_the_quantile_of_what_is_asked_within_the_lead_time() -> None:
    # 144 stretches of ten minutes: 7 ask for 8 GPUs, 72 for 1, 65 for nothing.
    wanted = {NOON + n * timedelta(minutes=10): 8.0 if n < 7 else 1.0 for n in range(79)}
    day = NOON + timedelta(days=1)
    sizes = [compute_headroom(wanted, NOON, day, 600, r).gpus for r in (0.4, 0.5, 0.9, 0.96)]
    assert sizes == [0, 1, 1, 8]


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.floats(0, 64), min_size=24, max_size=200),
    st.floats(0.05, 0.95),
)
def test_what_is_reserved_never_loses_and_no_other_number_saves_more(
    use: list[float], ratio: float
) -> None:
    held = np.array(use)
    best = count_to_reserve(held, ratio)
    gains = [compute_saved_hours(held, n, ratio) for n in range(66)]
    assert gains[best] >= -1e-6
    # A fraction of a GPU cannot be bought: within one GPU's hours of the best.
    assert gains[best] >= max(gains) - len(held) * (1 - ratio) - 1e-6


def test_a_reservation_pays_from_its_price_ratio_on() -> None:
    held = np.array([4.0] * 6 + [8.0] * 4)  # four always, eight for 40 % of the hours
    assert count_to_reserve(held, 0.62) == 4
    assert count_to_reserve(held, 0.35) == 8


def test_coverage_and_utilisation() -> None:
    one = ReservedGpus(
        np.array([5.0, 8.0]), np.array([8.0, 8.0]), np.array([2.0, 7.0]), np.array([3.0, 0.0])
    )
    assert one.coverage == pytest.approx(13 / 22)
    assert one.utilisation == pytest.approx(13 / 16)
    assert one.misplaced.tolist() == [2, 0]


@given(st.lists(st.floats(-50, 50), min_size=2, max_size=40), st.floats(0.05, 0.95))
def test_the_pinball_loss_is_least_at_its_quantile(values: list[float], quantile: float) -> None:
    truth = np.array(values)
    best = np.quantile(truth, quantile, method="inverted_cdf")
    least = compute_pinball(truth, np.full(len(truth), best), quantile)
    assert all(
        least <= compute_pinball(truth, np.full(len(truth), v), quantile) + 1e-9 for v in values
    )


@pytest.mark.parametrize(
    ("row", "profile"),
    [
        ({"workload_kind": "Notebook"}, "build"),
        ({"workload_kind": "InferenceService"}, "inference"),
        ({"workload_kind": "PyTorchJob", "runs": 2}, "train"),
        ({"workload_kind": "Job", "runs": 9, "gap_spread": 0.1, "gap_h": 24.0}, "retrain"),
        ({"workload_kind": "Job", "cron": True}, "retrain"),
        ({"workload_kind": "Job", "runs": 40, "gap_spread": 1.2, "run_h": 0.2}, "batch"),
        ({"workload_kind": "Job", "runs": 40, "gap_spread": 1.2, "run_h": 9.0}, "train"),
        ({"workload_kind": "Sculpture"}, "unknown"),
        ({"workload_kind": None}, "unknown"),
    ],
)
def test_profiles(row: dict[str, object], profile: str) -> None:
    assert judge_profile(msgspec.structs.replace(ONE_RUN, **row))[0] == profile
