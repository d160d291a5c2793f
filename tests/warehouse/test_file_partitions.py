"""Rows are divided into the partitions of their times, wherever they lie."""

from datetime import datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest

from warehouse.stages.files import _split_partitions

DAY = timedelta(days=1)
NIGHT = datetime(2026, 12, 30, 21)  # noqa: DTZ001  (tables hold naive UTC)


def build_rows(times: list[datetime]) -> pa.Table:
    """Return numbered rows of these times."""
    return pa.table({"bucket": pa.array(times, pa.timestamp("us")), "n": range(len(times))})


@pytest.mark.parametrize("table", ["signal", "ledger"])
@pytest.mark.parametrize("order", ["together", "by device", "shuffled", "latest first"])
def test_each_row_is_in_the_partition_of_its_time(table: str, order: str) -> None:
    times = [NIGHT + n * timedelta(minutes=55) for n in range(100)]
    if order == "by device":
        times = [*times[:60], *times[20:], *times[40:90]]
    elif order == "shuffled":
        times = [times[n] for n in np.random.default_rng(1).permutation(len(times))]
    elif order == "latest first":
        times.reverse()
    rows = build_rows(times)
    units = ("year", "month", "day") if table == "signal" else ("year", "month")
    wanted: dict[tuple[int, ...], list[int]] = {}
    for n, time in enumerate(times):
        wanted.setdefault(tuple(getattr(time, unit) for unit in units), []).append(n)
    parts = list(_split_partitions(table, rows))
    assert all(tuple(keys) == units for keys, _ in parts)
    assert {tuple(keys.values()): part["n"].to_pylist() for keys, part in parts} == wanted
    assert [tuple(keys.values()) for keys, _ in parts] == list(wanted), "in order of appearance"


@pytest.mark.parametrize("later", [0, 1])
def test_the_last_microsecond_of_a_day_is_in_it(later: int) -> None:
    midnight = datetime(1969 + later, 1, 1)  # noqa: DTZ001  (tables hold naive UTC)
    rows = build_rows([midnight - timedelta(microseconds=1), midnight])
    assert [keys["year"] for keys, _ in _split_partitions("signal", rows)] == [
        1968 + later,
        1969 + later,
    ]


def test_rows_without_partitions_are_one_part_and_no_rows_are_none() -> None:
    rows = build_rows([NIGHT, NIGHT + DAY])
    assert list(_split_partitions("plan", rows)) == [({}, rows)]
    assert list(_split_partitions("signal", rows.slice(0, 0))) == []
