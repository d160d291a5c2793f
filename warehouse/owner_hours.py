"""Reduce rows of `rollup_5m` to rows of `rollup_1h`: one per owner (device, namespace, pod), hour.

The columns follow from `rollup/reductions.csv`, like those of five minutes. A greatest, a least, a
sum or bits of samples are those of the hour's rows; a count is the sum of their counts; a mean is
weighted by the number of its samples. The rows come sorted by device and time, so that one pass
over a column reduces it (`owner_buckets`).
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import msgspec
import numpy as np
import pyarrow as pa

from fallow import tables
from warehouse.owner_buckets import (
    BINS,
    CLASSES,
    Reduction,
    fold_groups,
    load_reductions,
    reduce_groups,
    write_array,
)
from warehouse.sorted_samples import (
    Groups,
    Ints,
    SampleColumn,
    group_runs,
    read_column,
    take_rows,
    take_texts,
)

HOUR_US = 3_600_000_000
SECONDS = ("covered_s", *CLASSES)


class OwnerHours(msgspec.Struct, frozen=True):
    """Rows of `rollup_5m` in the order of their owners and hours."""

    rows: pa.Table
    order: Ints
    """Their places in `rows`."""
    groups: Groups
    sorted: Ints
    """The groups by device and hour."""
    named: dict[str, SampleColumn]
    """The owners: device, namespace and pod of each row."""

    def read(self, name: str) -> SampleColumn:
        """Return a column in the order of the groups."""
        return take_rows(read_column(self.rows.column(name)), self.order)


def reduce_hours(rows: pa.Table, threads: int) -> pa.Table:
    """Return the `rollup_1h` rows of whole hours of one cluster's `rollup_5m` rows.

    They are sorted by device and hour.
    """
    schema = tables.get_schema("rollup_1h")
    if not rows.num_rows:
        return schema.empty_table()
    hours = _group_by_hour(rows)
    steps: list[Callable[[], dict[str, pa.Array]]] = [
        partial(_name_hours, hours),
        partial(_sum_histograms, hours),
        *(partial(_sum_seconds, hours, name) for name in SECONDS),
        *(partial(_reduce_column, hours, row) for row in load_reductions()),
    ]
    arrays: dict[str, pa.Array] = {}
    with ThreadPoolExecutor(threads) as pool:
        for part in pool.map(lambda step: step(), steps):
            arrays.update(part)
    return pa.Table.from_arrays([arrays[name] for name in schema.names], schema=schema)


def _group_by_hour(rows: pa.Table) -> OwnerHours:
    named = {name: read_column(rows.column(name)) for name in ("device", "namespace", "pod")}
    device, namespace, pod = (named[name].values.astype(np.int64) for name in named)
    hour = read_column(rows.column("bucket")).values.astype(np.int64) // HOUR_US
    first = int(hour.min())
    place = device * (int(hour.max()) - first + 1) + (hour - first)
    owner = namespace * (int(pod.max()) + 1) + pod
    changes = np.ones(len(place), np.bool_)
    changes[1:] = (place[1:] != place[:-1]) | (owner[1:] != owner[:-1])
    starts = np.flatnonzero(changes)
    owners, codes = np.unique(owner[starts], return_inverse=True)
    order, groups = group_runs(place[starts] * len(owners) + codes, starts, len(place))
    named = {name: take_rows(column, order) for name, column in named.items()}
    return OwnerHours(rows, order, groups, np.argsort(groups.keys, kind="stable"), named)


def _name_hours(hours: OwnerHours) -> dict[str, pa.Array]:
    first = hours.sorted  # the first row of each group lies where its group does
    bucket = hours.read("bucket").values[first].astype(np.int64)
    return {
        "cluster": pa.repeat(hours.rows.column("cluster")[0], len(first)),
        "bucket": pa.array(bucket // HOUR_US * HOUR_US, pa.timestamp("us")),
        **{
            name: take_texts(column.texts, column.values[first])
            for name, column in hours.named.items()
        },
    }


def _sum_seconds(hours: OwnerHours, name: str) -> dict[str, pa.Array]:
    return {name: _write(hours, _sum(hours.read(name), hours.groups), name)}


def _sum_histograms(hours: OwnerHours) -> dict[str, pa.Array]:
    lists = hours.rows.column("act_hist").combine_chunks()
    counts = lists.flatten().to_numpy(zero_copy_only=False).reshape(-1, BINS)
    if lists.null_count:
        present, counts = counts, np.zeros((len(lists), BINS), np.int64)
        counts[lists.is_valid().to_numpy(zero_copy_only=False)] = present
    summed = fold_groups(np.add, counts[hours.order], hours.groups, np.int64)[hours.sorted]
    offsets = np.arange(0, summed.size + 1, BINS, dtype=np.int32)
    return {"act_hist": pa.ListArray.from_arrays(offsets, summed.astype(np.int32).ravel())}


def _reduce_column(hours: OwnerHours, row: Reduction) -> dict[str, pa.Array]:
    column = hours.read(row.column)
    if row.reduction == "mean":
        weights = hours.read(_find_weight(row.sample))
        result = _weigh(column, weights, hours.groups)
    elif row.reduction in {"count", "sum"}:
        result = _sum(column, hours.groups)
    else:
        result = reduce_groups(row.reduction, column, hours.groups)
    arrays = {row.column: _write(hours, result, row.column, column.texts)}
    if row.column == "interval_s":
        result = take_rows(result, hours.sorted)
        seconds = result.values
        expected = np.divide(3600.0, seconds, out=np.zeros(len(seconds)), where=seconds > 0)
        missing = seconds <= 0 if result.valid is None else ~result.valid | (seconds <= 0)
        arrays["expected"] = pa.array(expected.astype(np.float32), mask=missing)
    return arrays


def _find_weight(sample: str) -> str:
    """Return the column that counts the values of a mean; where none does, its samples."""
    counts = {row.sample: row.column for row in load_reductions() if row.reduction == "count"}
    return counts.get(sample, "n")


def _weigh(column: SampleColumn, weights: SampleColumn, groups: Groups) -> SampleColumn:
    """Return means by weights; a plain mean where every weight is 0."""
    counts = weights.values.astype(np.int64)
    values, valid = column.values.astype(np.float64), column.valid
    if valid is not None:
        counts, values = np.where(valid, counts, 0), np.where(valid, values, 0.0)
    total = fold_groups(np.add, counts, groups)
    summed = fold_groups(np.add, values * counts, groups)
    means = np.divide(summed, total, out=np.zeros(len(total)), where=total > 0)
    if (total > 0).all():
        return SampleColumn(means)
    plain = reduce_groups("mean", SampleColumn(values, valid), groups)
    some = np.ones(len(total), np.bool_) if plain.valid is None else plain.valid
    return SampleColumn(np.where(total > 0, means, plain.values), some)


def _sum(column: SampleColumn, groups: Groups) -> SampleColumn:
    kind = np.float64 if column.values.dtype.kind == "f" else np.int64
    return reduce_groups("sum", SampleColumn(column.values.astype(kind), column.valid), groups)


def _write(
    hours: OwnerHours, column: SampleColumn, name: str, texts: pa.Array | None = None
) -> pa.Array:
    column = take_rows(column, hours.sorted)
    return write_array(column, tables.get_schema("rollup_1h").field(name).type, texts)
