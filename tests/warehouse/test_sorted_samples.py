"""Groups are reduced as by a loop over their samples, a column of equal values as any other."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from warehouse.owner_buckets import reduce_groups
from warehouse.sorted_samples import SampleColumn, group_keys, is_shared, read_column, take_rows

GROUPS = group_keys(np.array([1, 1, 1, 4, 4, 9]))[1]
VALUES = np.float32(0.1), np.float64(0.1), np.int64(7), np.float32("nan")
ORDER = np.array([5, 0, 3, 1, 4, 2])


@pytest.mark.parametrize("reduction", ["greatest", "least", "mean", "count", "sum"])
@pytest.mark.parametrize(
    "value", [np.float32(0.1), np.float64(0.1), np.int64(7), np.float32("nan")]
)
def test_equal_values_are_reduced_as_their_copies(reduction: str, value: np.generic) -> None:
    copies = np.repeat(value, 6)
    shared = take_rows(read_column(pa.chunked_array([copies[:2], copies[2:]])), ORDER)
    assert is_shared(shared.values)
    expected = reduce_groups(reduction, SampleColumn(copies), GROUPS).values
    actual = reduce_groups(reduction, shared, GROUPS).values
    assert actual.tobytes() == expected.tobytes()
    assert actual.dtype == expected.dtype


BY_HAND = {
    "greatest": max,
    "least": min,
    "mean": lambda values: sum(values) / len(values),
    "count": len,
    "sum": sum,
}
KEYED = st.lists(
    st.tuples(st.integers(0, 4), st.one_of(st.none(), st.integers(-9, 9))), min_size=1, max_size=40
)


@given(KEYED, st.sampled_from(sorted(BY_HAND)))
def test_groups_of_any_lengths_are_reduced_as_by_a_loop(
    rows: list[tuple[int, int | None]], reduction: str
) -> None:
    order, groups = group_keys(np.array([key for key, _ in rows]))
    column = read_column(pa.chunked_array([pa.array([v for _, v in rows], pa.int64())]))
    result = reduce_groups(reduction, take_rows(column, order), groups)
    valid = np.ones(len(groups.keys), np.bool_) if result.valid is None else result.valid
    found = {
        int(key): result.values[n].item() if valid[n] else None for n, key in enumerate(groups.keys)
    }
    expected = {}
    for key in {key for key, _ in rows}:
        values = [v for k, v in rows if k == key and v is not None]
        some = bool(values) or reduction == "count"
        expected[key] = BY_HAND[reduction](values) if some else None  # type: ignore[operator]
    assert found == expected


@given(st.lists(st.integers(0, 5), max_size=40))
def test_samples_of_a_group_keep_their_order_and_longer_groups_come_first(keys: list[int]) -> None:
    order, groups = group_keys(np.array(keys, np.int64))
    assert sorted(order.tolist()) == list(range(len(keys)))
    lengths = groups.lengths().tolist()
    assert lengths == sorted(lengths, reverse=True)
    for number, key in enumerate(groups.keys.tolist()):
        rows = order[groups.numbers == number].tolist()
        assert rows == [row for row, other in enumerate(keys) if other == key]
        assert len(rows) == lengths[number]


@pytest.mark.parametrize("values", [[0.0, -0.0, 0.0], [1.0, 2.0, 1.0], [1.0, None, 1.0], [1.0], []])
def test_other_values_stay_as_they_are(values: list[float | None]) -> None:
    column = read_column(pa.chunked_array([pa.array(values, pa.float64())]))
    assert not is_shared(column.values) or len(values) <= 1
    expected = [0.0 if value is None else value for value in values]
    assert column.values.tobytes() == np.array(expected).tobytes()


def test_one_text_has_the_first_rank_everywhere() -> None:
    column = read_column(pa.chunked_array([pa.array(["a", "a"]), pa.array(["a"])]))
    assert (column.values.tolist(), column.valid) == ([0, 0, 0], None)
    mixed = read_column(pa.chunked_array([pa.array(["a", None]), pa.array(["a"])]))
    assert mixed.values.tolist() == [0, -1, 0]
