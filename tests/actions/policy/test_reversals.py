"""What a history proves about the rate of reversals that a policy declares."""

from fractions import Fraction
from math import comb

import hypothesis.strategies as st
import pytest
from hypothesis import given

from actions.policy.reversals import ReversalProof, count_needed_stops, get_upper_end


@pytest.mark.parametrize(
    ("reversals", "of", "end"),
    [
        # 0 of n: 1 - 0.05 ** (1 / n), by hand.
        (0, 3, 0.631597),
        (0, 29, 0.098145),
        (0, 59, 0.049508),
        # R: binom.test(k, n, alternative = "less")$conf.int[2].
        (1, 10, 0.394163),
        (2, 20, 0.282619),
        (3, 3, 1.0),
        (0, 0, 1.0),
    ],
)
def test_the_upper_end_is_that_of_clopper_and_pearson(reversals: int, of: int, end: float) -> None:
    assert get_upper_end(reversals, of) == pytest.approx(end, abs=1e-6)


@given(st.integers(1, 150), st.data())
def test_at_the_upper_end_so_few_reversals_are_seen_one_time_in_twenty(
    of: int, data: st.DataObject
) -> None:
    reversals = data.draw(st.integers(0, of - 1))
    rate = Fraction(get_upper_end(reversals, of))
    tail = sum(comb(of, k) * rate**k * (1 - rate) ** (of - k) for k in range(reversals + 1))
    assert float(tail) == pytest.approx(0.05, abs=1e-9)


@pytest.mark.parametrize(
    ("reversals", "of", "declared", "met"),
    [
        (0, 3, 0.01, False),
        (0, 28, 0.10, False),
        (0, 29, 0.10, True),
        (0, 58, 0.05, False),
        (0, 59, 0.05, True),
        (0, 298, 0.01, False),
        (0, 299, 0.01, True),
        (1, 45, 0.10, False),
        (1, 46, 0.10, True),
        (0, 0, 1.0, False),
        (0, 10_000, 0.0, False),
    ],
)
def test_a_rate_is_proved_from_so_many_stops_on(
    reversals: int, of: int, declared: float, met: bool
) -> None:
    assert ReversalProof(reversals, of, declared, days=14).met is met


@given(st.integers(0, 40), st.floats(0.005, 0.999))
def test_the_stops_needed_are_the_fewest_that_prove_it(reversals: int, rate: float) -> None:
    found = count_needed_stops(reversals, rate)
    assert found is not None
    assert get_upper_end(reversals, found) <= rate
    assert found == reversals + 1 or get_upper_end(reversals, found - 1) > rate


@pytest.mark.parametrize(
    ("proof", "said"),
    [
        (
            ReversalProof(0, 9, 0.10, days=14),
            (
                "0 of 9 within 10.0%: upper end 28.3%; needs about 20 more stops, at the pace of "
                "this history 32 days"
            ),
        ),
        (
            ReversalProof(0, 28, 0.10, days=28),
            (
                "0 of 28 within 10.0%: upper end 10.1%; needs about 1 more stop, at the pace of "
                "this history 1 day"
            ),
        ),
        (ReversalProof(0, 29, 0.10, days=60), "0 of 29 within 10.0%: upper end 9.8%"),
        (
            ReversalProof(1, 30, 0.10, days=30),
            (
                "1 of 30 within 10.0%: upper end 14.9%; needs about 16 more stops without another "
                "reversal, at the pace of this history 16 days"
            ),
        ),
        (
            ReversalProof(3, 9, 0.10, days=14),
            "3 of 9 within 10.0%: upper end 65.5%; that is more than it declares",
        ),
        (
            ReversalProof(0, 9, 0.0, days=14),
            "0 of 9 within 0.0%: upper end 28.3%; no history proves a rate of 0%",
        ),
        (ReversalProof(0, 0, 0.10, days=14), "no stop to judge: what stops nothing proves nothing"),
    ],
)
def test_what_a_history_lacks_is_said_in_stops_and_days(proof: ReversalProof, said: str) -> None:
    assert str(proof) == said
