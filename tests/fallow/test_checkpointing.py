"""Young, Daly, the expected time with restarts, and the mean time between failures."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallow.checkpointing import (
    compute_daly_interval,
    compute_hazard,
    compute_mtbf,
    compute_realised_share,
    compute_time_per_work,
    compute_young_interval,
)

MINUTE, HOUR = 60.0, 3600.0


@pytest.mark.parametrize(
    ("write_s", "mtbf_h", "restart_s", "interval_h", "longer_pct"),
    [
        (120, 24, 15 * MINUTE, 1.24, 6.6),
        (29.9, 24, 15 * MINUTE, 0.63, 3.8),
        (3.3, 24, 15 * MINUTE, 0.21, 1.9),
        (120, 6, 12 * MINUTE, 0.61, 15),
        (60, 3.09, 6 * MINUTE, 0.31, 15),
    ],
)
def test_the_known_table(
    write_s: float, mtbf_h: float, restart_s: float, interval_h: float, longer_pct: float
) -> None:
    best = compute_daly_interval(write_s, mtbf_h * HOUR)
    assert round(best / HOUR, 2) == interval_h
    longer = (compute_time_per_work(best, write_s, mtbf_h * HOUR, restart_s) - 1) * 100
    assert round(longer, 1 if longer_pct < 10 else 0) == longer_pct


def test_a_discount_is_worth_less_than_it_says() -> None:
    """p5.48xlarge in us-west-2: 76.4 % below list, and 15 % longer."""
    assert compute_realised_share(1 - 0.764, 1.0, 1.15) == pytest.approx(0.729, abs=5e-4)
    assert compute_realised_share(0.24, 1.0, 1 / 0.24) == pytest.approx(
        0
    )  # break-even at 4.2 times as long
    assert round(1 / 0.24, 1) == 4.2


def test_bands_become_hazards() -> None:
    assert compute_hazard(0.05) == pytest.approx(7e-5, rel=0.01)
    assert compute_hazard(0.20) == pytest.approx(3e-4, rel=0.03)


def test_the_mean_time_between_failures_of_a_training_fleet() -> None:
    """419 failures in 54 days on 16,384 GPUs."""
    fleet = compute_mtbf(419, 54 * 24)
    assert fleet.mean_h == pytest.approx(3.09, abs=0.005)
    per_gpu = compute_mtbf(419, 54 * 24 * 16_384)
    assert per_gpu.mean_h == pytest.approx(50_700, rel=1e-3)
    assert per_gpu.mean_h is not None
    assert per_gpu.mean_h / 8 / 24 == pytest.approx(264, abs=0.5)
    assert fleet.low_h < 3.09 < (fleet.high_h or 0)


def test_its_interval_is_that_of_the_chi_square_tables() -> None:
    """MIL-HDBK-781A's factors for 5 failures at 90 %, two-sided: 0.476 and 2.538."""
    seen = compute_mtbf(5, 5.0, 0.90)
    assert seen.low_h == pytest.approx(0.476, abs=1e-3)
    assert seen.high_h == pytest.approx(2.538, abs=1e-3)
    nothing = compute_mtbf(0, 100.0)
    assert nothing.mean_h is None
    assert nothing.high_h is None
    assert nothing.low_h == pytest.approx(100 / -math.log(0.05))


def test_work_that_never_ends_is_infinite_and_no_failure_costs_the_writes() -> None:
    assert compute_time_per_work(10_000.0, 0.0, 1.0, 0.1) == math.inf
    assert compute_time_per_work(1.0, 0.1, math.inf, 1.0) == pytest.approx(1.1)
    assert compute_daly_interval(10.0, 4.0) == 4.0


POSITIVE = st.floats(0.01, 100)


@given(POSITIVE, st.floats(0, 1), POSITIVE, st.floats(0, 2))
def test_failures_never_make_work_shorter(
    interval: float, write: float, between: float, restart: float
) -> None:
    longer = compute_time_per_work(interval, write, between, restart)
    assert longer >= 1
    assert longer >= compute_time_per_work(interval, write, between * 2, restart) * (1 - 1e-9)
    assert longer >= compute_time_per_work(interval, write, between, restart / 2) * (1 - 1e-9)


@given(st.floats(0.001, 1), st.floats(3, 100), st.floats(0, 1))
def test_dalys_interval_is_as_good_as_its_neighbours(
    write: float, between: float, restart: float
) -> None:
    best = compute_daly_interval(write, between)
    if write >= between / 2:
        return
    at = compute_time_per_work(best, write, between, restart)
    for other in (compute_young_interval(write, between) * 3, best * 3, best / 3):
        assert at <= compute_time_per_work(other, write, between, restart) * (1 + 5e-3)
