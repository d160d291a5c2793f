"""From when on a reported price holds, against a list with a price of each hour."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from itertools import permutations
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from warehouse.rate_history import (
    BEGIN,
    UNPRICED,
    PricedHours,
    RateChange,
    RateRow,
    Validity,
    merge_rates,
)

T = datetime(2026, 11, 1)  # noqa: DTZ001  (tables hold naive UTC)
HOUR = timedelta(hours=1)
COUNT = 12
HOURS = [T + n * HOUR for n in range(COUNT)]


def rate(usd: int, valid_from: datetime = BEGIN, **columns: object) -> RateRow:
    names = ("region", "zone", "instance_type", "gpu_model", "cluster")
    row = {
        "source": "settings", "provider": "override", "term": "on-demand",
        **dict.fromkeys(names, ""), "valid_from": valid_from, "node_usd_h": Decimal(usd),
        "gpu_count": 1, **columns,
    }  # fmt: skip
    return msgspec.convert(row, RateRow)


def read(rows: Sequence[RateRow], term: str = "on-demand") -> list[int | None]:
    """Return the price of each hour; at most one row has it."""
    rows_then = [[row for row in rows if row.term == term and row.holds_at(hour)] for hour in HOURS]
    assert all(len(of) <= 1 for of in rows_then)
    return [int(of[0].node_usd_h or 0) if of else None for of in rows_then]


def validity(
    first: int = 0, last: int = 0, stated: int | None = None, open_from: int = 0
) -> Validity:
    hours = (PricedHours("c", "H100", T + first * HOUR, T + last * HOUR),)
    at = None if stated is None else T + stated * HOUR
    return Validity(at, T + open_from * HOUR, hours if first < last else ())


def changed(changes: Sequence[RateChange]) -> set[int]:
    return {
        n
        for n, hour in enumerate(HOURS)
        for change in changes
        if change.from_at <= hour < change.to_at and not change.is_waiting and not change.is_first
    }


report = st.tuples(
    st.one_of(st.none(), st.integers(1, 4)),
    st.one_of(st.none(), st.integers(0, COUNT - 1)),
    st.integers(0, COUNT - 1),
    st.integers(0, COUNT),
    st.integers(0, COUNT),
)


@given(st.lists(report, max_size=6))
def test_every_hour_has_the_price_that_held_or_that_names_it(
    reports: list[tuple[int | None, int | None, int, int, int]],
) -> None:
    rows: tuple[RateRow, ...] = ()
    prices: list[int | None] = [None] * COUNT
    for usd, stated, first, last, open_from in reports:
        rule = validity(first, last, stated, open_from)
        report = [] if usd is None else [rate(usd)]
        history = merge_rates(rows, report, rule)
        before = list(prices)
        for n in range(COUNT):
            is_priced = first <= n < last
            if stated is None and not is_priced:
                prices[n] = usd
            if stated is not None and n >= stated and not (is_priced and n < open_from):
                prices[n] = usd
        assert read(history.rows) == prices
        assert changed(history.changes) == {n for n in range(COUNT) if before[n] != prices[n]}
        again = merge_rates(history.rows, report, rule)
        assert set(again.rows) == set(history.rows)
        assert [change for change in again.changes if not change.is_waiting] == []
        rows = history.rows


@given(
    st.lists(st.tuples(st.integers(1, COUNT - 1), st.integers(1, 3)), max_size=4, unique_by=min),
    st.integers(0, COUNT),
)
def test_an_imported_rate_holds_from_its_time_in_every_order_of_arrival(
    changes: list[tuple[int, int]], last: int
) -> None:
    expected: list[int | None] = [9] * COUNT
    for at, usd in sorted(dict(changes).items()):
        expected[at:] = [usd] * (COUNT - at)
    for order in permutations(dict(changes).items()):
        rows = merge_rates((), [rate(9)], validity(), is_whole=False).rows
        for at, usd in order:
            report = [rate(usd, T + at * HOUR)]
            rows = merge_rates(rows, report, validity(0, last), is_whole=False).rows
            assert rows == merge_rates(rows, report, validity(0, last), is_whole=False).rows
        assert read(rows) == expected


def test_a_first_price_holds_only_for_hours_that_nothing_else_prices() -> None:
    history = merge_rates((), [rate(2)], validity(3, 6))
    assert read(history.rows) == [2, 2, 2, None, None, None, 2, 2, 2, 2, 2, 2]
    assert read(history.rows, UNPRICED) == [None] * 3 + [2] * 3 + [None] * 6
    later = merge_rates(history.rows, [rate(3)], validity(0, 9))
    assert read(later.rows, UNPRICED) == read(history.rows, UNPRICED), "what held, stays"


def test_rows_of_a_card_with_dates_and_of_servers_name_their_hours() -> None:
    card = [rate(5, source="rate-card"), rate(4, T + 8 * HOUR, source="rate-card")]
    history = merge_rates([rate(6, source="rate-card")], card, validity(0, 10))
    assert read(history.rows) == [6] * 8 + [4] * 4
    kept = merge_rates([rate(6, source="rate-card")], card, validity(0, 10, open_from=9))
    assert read(kept.rows) == [6] * 9 + [4] * 3
    [waiting] = [change for change in kept.changes if change.is_waiting]
    assert (waiting.from_at, waiting.to_at) == (T + 8 * HOUR, T + 9 * HOUR)


def test_a_commitment_has_the_hours_of_its_term_and_a_changed_price_the_later_ones() -> None:
    term = {"source": "commitment y", "nodes": 2, "valid_to": T + 10 * HOUR}
    first = merge_rates((), [rate(5, T + 2 * HOUR, **term)], validity(0, 6))
    assert read(first.rows) == [None] * 2 + [5] * 8 + [None] * 2
    cheaper = merge_rates(first.rows, [rate(4, T + 2 * HOUR, **term)], validity(0, 6))
    assert read(cheaper.rows) == [None] * 2 + [5] * 4 + [4] * 4 + [None] * 2
    ended = merge_rates(cheaper.rows, (), validity(0, 8))
    assert read(ended.rows) == [None] * 2 + [5] * 4 + [4] * 2 + [None] * 4


@pytest.mark.parametrize(
    ("columns", "last"), [({"cluster": "d"}, 0), ({"gpu_model": "A10G"}, 0), ({}, 6)]
)
def test_hours_of_other_clusters_and_models_are_not_the_rates(
    columns: dict[str, Any], last: int
) -> None:
    old = [rate(2, **columns)]
    history = merge_rates(old, [rate(3, **columns)], validity(0, 6))
    assert read(history.rows) == [2] * last + [3] * (COUNT - last)
