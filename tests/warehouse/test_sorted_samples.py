"""A column whose values are all equal is reduced as any other."""

import numpy as np
import pyarrow as pa
import pytest

from warehouse.owner_buckets import reduce_groups
from warehouse.sorted_samples import SampleColumn, group_sorted, is_shared, read_column, take_rows

GROUPS = group_sorted(np.array([1, 1, 1, 4, 4, 9]))
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
