"""Cents: one sum is rounded once, and its parts sum to it."""

from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from fallow.money import (
    CENT,
    apportion,
    multiply,
    round_to_cents,
    split,
    split_states,
    sum_known,
    sum_money,
)

dollars = st.none() | st.decimals(0, 10**6, places=8)


@given(st.lists(dollars, max_size=30))
def test_parts_sum_to_the_rounded_sum_and_each_is_within_a_cent(
    parts: list[Decimal | None],
) -> None:
    made = apportion(parts)
    assert [m is None for m in made] == [p is None for p in parts]
    known = [m for m in made if m is not None]
    assert (sum(known, Decimal()) if known else None) == sum_money(parts)
    assert all(abs(m - p) < CENT for m, p in zip(made, parts, strict=True) if m and p)
    assert all(m == round_to_cents(m) for m in known)


def test_the_largest_remainders_take_the_cents_that_are_left() -> None:
    thirds = [Decimal("3.33333333"), Decimal("3.33333333"), Decimal("3.33333334")]
    assert apportion(thirds) == [Decimal("3.33"), Decimal("3.33"), Decimal("3.34")]
    assert apportion([Decimal("0E-8"), None]) == [Decimal("0.00"), None]


@given(st.lists(st.tuples(dollars, st.integers(0, 100)), max_size=30))
def test_rows_and_their_idle_parts_sum_to_their_own_totals(
    rows: list[tuple[Decimal | None, int]],
) -> None:
    usd = [amount for amount, _ in rows]
    idle = [None if amount is None else amount * percent / 100 for amount, percent in rows]
    spent, idled = split(usd, idle)
    for column, exact in ((spent, usd), (idled, idle)):
        known = [c for c in column if c is not None]
        assert (sum(known, Decimal()) if known else None) == sum_money(exact)
    for row, part, (_, percent) in zip(spent, idled, rows, strict=True):
        assert (row is None) == (part is None)
        if row is not None and part is not None:
            assert 0 <= part <= row
            assert percent < 100 or part == row


@given(st.dictionaries(st.sampled_from(["idle", "free", "lost", "low", "unknown"]), dollars))
def test_what_states_cost_in_cents_sums_to_the_bill_of_a_cluster(
    states: dict[str, Decimal | None],
) -> None:
    cents = split_states(states)
    assert list(cents) == list(states)
    assert sum_known(cents.values()) == sum_money(list(states.values()))


def test_a_states_cents_are_the_same_alone_and_in_a_sum() -> None:
    exact = {"idle": Decimal("10.0049"), "free": Decimal("1.0049"), "low": Decimal("1.0049")}
    cents = split_states(exact)
    assert cents == {"idle": Decimal("10.00"), "free": Decimal("1.01"), "low": Decimal("1.00")}
    assert sum_known(cents.values()) == Decimal("12.01")


def test_a_part_of_dollars_has_the_decimals_that_can_be_stored() -> None:
    assert multiply(Decimal(10), 1 / 3) == Decimal("3.333333")
    assert multiply(None, 1 / 3) is None
