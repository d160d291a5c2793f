"""The interval of what several actions should release: it holds the truth, and is narrow."""

import numpy as np
import pytest

from actions.savings.forecast import Stretches, forecast


def stretches(
    lengths: np.ndarray, *, age: float = 0.0, horizon: float = 48.0, gpus: float = 1.0,
    ended: np.ndarray | None = None, whose: np.ndarray | None = None,
) -> Stretches:  # fmt: skip
    over = np.ones(len(lengths), bool) if ended is None else ended
    owner = np.arange(len(lengths)) if whose is None else whose
    return Stretches(lengths, over, age, owner.astype(np.int64), ((gpus, horizon),))


def test_nothing_done_promises_nothing() -> None:
    made = forecast([])
    assert (made.gpu_hours, made.low, made.high) == (0.0, 0.0, 0.0)


def test_without_a_past_all_or_nothing_may_come_of_it() -> None:
    made = forecast([stretches(np.zeros(0), horizon=10.0, gpus=4.0)])
    assert (made.gpu_hours, made.low, made.high) == (0.0, 0.0, 40.0)


def test_where_every_stretch_lasts_alike_the_interval_is_a_point() -> None:
    made = forecast([stretches(np.full(50, 8.0), age=3.0, gpus=2.0)])
    assert made.gpu_hours == pytest.approx(10.0)
    assert [made.low, made.high] == pytest.approx([10.0, 10.0])


def test_nothing_is_released_beyond_the_horizon() -> None:
    made = forecast([stretches(np.full(50, 80.0), horizon=6.0, gpus=2.0)])
    assert made.high == pytest.approx(12.0)


def test_stretches_of_one_workload_say_less_than_those_of_many() -> None:
    rng = np.random.default_rng(2)
    lengths = np.repeat(rng.exponential(8.0, 6), 10)
    actions = 40
    many = forecast([stretches(lengths)] * actions)
    few = forecast([stretches(lengths, whose=np.repeat(np.arange(6), 10))] * actions)
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
        made = forecast([stretches(seen, ended=ended, horizon=24.0)] * 50)
        within += made.low <= true <= made.high
        widths.append((made.high - made.low) / 2 / made.gpu_hours)
    assert within >= 54
    assert np.median(widths) <= 0.4
