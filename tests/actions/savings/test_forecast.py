"""The interval of what several actions should release: it holds the truth, and is narrow."""

import numpy as np
import pytest

from actions.savings.forecast import IdleStretches, compute_expected_rest, forecast_savings

pytestmark = pytest.mark.slow


def stretches(
    lengths: np.ndarray, *, age: float = 0.0, horizon: float = 48.0, gpus: float = 1.0,
    ended: np.ndarray | None = None, whose: np.ndarray | None = None,
) -> IdleStretches:  # fmt: skip
    over = np.ones(len(lengths), bool) if ended is None else ended
    owner = np.arange(len(lengths)) if whose is None else whose
    return IdleStretches(lengths, over, age, owner.astype(np.int64), ((gpus, horizon),))


def test_nothing_done_promises_nothing() -> None:
    made = forecast_savings([])
    assert (made.gpu_hours, made.low, made.high) == (0.0, 0.0, 0.0)


def test_without_a_past_all_or_nothing_may_come_of_it() -> None:
    made = forecast_savings([stretches(np.zeros(0), horizon=10.0, gpus=4.0)])
    assert (made.gpu_hours, made.low, made.high) == (0.0, 0.0, 40.0)


def test_where_every_stretch_lasts_alike_the_interval_is_a_point() -> None:
    made = forecast_savings([stretches(np.full(50, 8.0), age=3.0, gpus=2.0)])
    assert made.gpu_hours == pytest.approx(10.0)
    assert [made.low, made.high] == pytest.approx([10.0, 10.0])


def test_nothing_is_released_beyond_the_horizon() -> None:
    made = forecast_savings([stretches(np.full(50, 80.0), horizon=6.0, gpus=2.0)])
    assert made.high == pytest.approx(12.0)


def test_stretches_of_one_workload_say_less_than_those_of_many() -> None:
    rng = np.random.default_rng(2)
    lengths = np.repeat(rng.exponential(8.0, 6), 10)
    actions = 40
    many = forecast_savings([stretches(lengths)] * actions)
    few = forecast_savings([stretches(lengths, whose=np.repeat(np.arange(6), 10))] * actions)
    assert few.high - few.low > 1.3 * (many.high - many.low)


@pytest.mark.parametrize("mean_h", [4.0, 20.0])
def test_nine_of_ten_truths_lie_within_and_the_interval_is_narrow(mean_h: float) -> None:
    """Worlds whose law is known: 60 stretches seen, 50 actions on others of the same law."""
    rng = np.random.default_rng(7)
    within, widths = 0, []
    for _ in range(60):
        lengths = rng.exponential(mean_h, 60)
        # Some are still going when they are looked at.
        until = rng.uniform(0.5, 4.0, 60) * mean_h
        ended, seen = lengths <= until, np.minimum(lengths, until)
        true = np.minimum(rng.exponential(mean_h, 50), 24.0).sum()
        made = forecast_savings([stretches(seen, ended=ended, horizon=24.0)] * 50)
        within += made.low <= true <= made.high
        widths.append((made.high - made.low) / 2 / made.gpu_hours)
    assert within >= 54
    assert np.median(widths) <= 0.4


def test_what_outlasted_history_goes_on_as_its_age_and_not_as_its_hours_say() -> None:
    """By hand: ended after 6 and 8 hours, going on after 10. Old are all three, above 5 hours.

    The index is 2 / (ln 6/5 + ln 8/5 + ln 2) = 1.486, and a tail of it from 10 hours on lasts
    10 * (1 - 2 ** -0.486) / 0.486 hours of the next 10.
    """
    lengths, ended = np.array([1.0, 6.0, 8.0, 10.0]), np.array([True, True, True, False])
    assert compute_expected_rest(lengths, ended, 10.0, 10.0) == pytest.approx(5.884, abs=1e-3)
    # Twice as old, it lasts longer of the same hours: 20 * (1 - 1.5 ** -0.486) / 0.486.
    assert compute_expected_rest(lengths, ended, 20.0, 10.0) == pytest.approx(7.360, abs=1e-3)


def test_an_index_of_one_has_the_logarithm_as_its_integral() -> None:
    # Old are those beyond 5 hours: ln(10 / 5) + ln(e / 2) = 1 per the one end among them.
    lengths, ended = np.array([10.0, 5.0 * np.e / 2]), np.array([False, True])
    assert compute_expected_rest(lengths, ended, 10.0, 10.0) == pytest.approx(
        10 * np.log(2), rel=1e-6
    )


def test_a_heavy_tail_is_within_where_an_exponential_one_is_far_below() -> None:
    """Worlds of a Pareto law: two hours at least, index 0.7, seen for a day, horizon two days."""
    rng = np.random.default_rng(11)

    def drawn(least: float, count: int) -> np.ndarray:
        return least * np.exp(rng.standard_exponential(count) / 0.7)

    within = 0
    for _ in range(60):
        lengths = drawn(2.0, 60)
        seen, ended = np.minimum(lengths, 24.0), lengths <= 24.0
        true = np.minimum(drawn(20.0, 15) - 20.0, 48.0).sum()
        made = forecast_savings([stretches(seen, ended=ended, age=20.0)] * 15)
        within += made.low <= true <= made.high
    assert within >= 54
