"""Reduce device samples to rows of `rollup_5m`: one per owner (device, namespace, pod) and bucket.

    classified.sql ──► sorted by owner and bucket ──► reductions.csv ──► rows

The engine says what a sample means (`rollup/classified.sql`), and `rollup/reductions.csv` how each
column of a bucket follows from its samples. A bucket has few samples and a row has 66 columns:
reducing sorted columns one by one takes a fraction of the time of a GROUP BY, which finds the
states of all columns in a hash table for each sample.
"""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from functools import cache, partial
from typing import Literal

import msgspec
import numpy as np
import pyarrow as pa

from fallow import tables
from fallow.resources import read_table
from warehouse.sampled_devices import OWN_COLUMNS, build_schema, list_devices
from warehouse.sorted_samples import (
    BUCKET_US,
    Array,
    Flags,
    Groups,
    Ints,
    LaterSamples,
    SampleColumn,
    SortedSamples,
    find_groups,
    group_by_owner,
    is_shared,
    list_later,
    measure_offset,
    sort_by_time,
    sort_distinct,
    take_rows,
    take_texts,
)

BUCKET_S = 300.0
CLASSES = ("blind_s", "idle_s", "low_s", "busy_s", "conflict_s")
"""Columns of the seconds of each class, by the number that `classified.sql` gives the class."""
BINS = 21
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001  (tables hold naive UTC)
_MICROSECOND = timedelta(microseconds=1)


class Reduction(msgspec.Struct, frozen=True):
    """How a column of `rollup_5m` follows from a column of the samples.

    `reach`: 1 where a bucket without such a value takes it from the earlier samples that are still
    valid in it.
    """

    column: str
    reduction: Literal["greatest", "least", "mean", "count", "or", "sum"]
    sample: str
    reach: str


class Buckets(msgspec.Struct, frozen=True):
    """The rows to write, and which samples each has."""

    keys: Ints
    samples: SortedSamples
    own: Ints
    """The group of samples of each row; -1 where it has none, only later ones."""
    later: LaterSamples
    reaching: Ints
    """The group of later samples of each row; -1 where it has none."""


@cache
def load_reductions() -> tuple[Reduction, ...]:
    """Return the rows of `rollup/reductions.csv`."""
    rows = read_table("warehouse", "rollup/reductions.csv")
    return tuple(msgspec.convert(row, Reduction) for row in rows)


class RolledSamples(msgspec.Struct, frozen=True):
    """Rows of `rollup_5m`, and the devices whose samples they are (`list_devices`)."""

    rows: pa.Table
    devices: pa.Table
    rejections: pa.Table | None = None
    """Rows of `rejection`: devices whose exporters contradict each other."""


def reduce_samples(
    batches: Iterable[pa.RecordBatch],
    labels: pa.Table,
    cluster: str,
    first: datetime,
    last: datetime,
    *,
    threads: int,
) -> RolledSamples:
    """Return a cluster's `rollup_5m` rows and devices of the buckets in [first, last), naive UTC.

    The batches are those of `rollup/classified.sql`, the labels those of `rollup/labels.sql`.
    Samples must begin before `first` by the longest validity and the longest gap of an energy
    increase. Rows are sorted by device and bucket.
    """
    schema = tables.get_schema("rollup_5m")
    with ThreadPoolExecutor(threads) as pool:
        timed = sort_by_time(batches, labels, pool)
        if timed is None:
            return RolledSamples(schema.empty_table(), build_schema().empty_table())
        first_us, last_us = (round((end - _EPOCH) / _MICROSECOND) for end in (first, last))
        described = pool.submit(list_devices, dict(timed.columns), cluster, first_us, last_us)
        for name in OWN_COLUMNS:
            del timed.columns[name]
        samples = group_by_owner(timed, pool)
        devices = described.result()
        del timed, described
        buckets = _list_buckets(samples, first, last)
        steps: list[Callable[[], dict[str, pa.Array]]] = [
            partial(_name_keys, buckets, cluster),
            partial(_sum_seconds, buckets),
            partial(_count_bins, buckets),
            *(
                partial(_reduce_column, buckets, name)
                for name in dict.fromkeys(r.sample for r in load_reductions())
            ),
        ]
        arrays: dict[str, pa.Array] = {}
        for part in pool.map(lambda step: step(), steps):
            arrays.update(part)
    rows = pa.Table.from_arrays([arrays[name] for name in schema.names], schema=schema)
    return RolledSamples(rows, devices)


def _list_buckets(samples: SortedSamples, first: datetime, last: datetime) -> Buckets:
    later = list_later(samples)
    keys = sort_distinct(np.concatenate([samples.groups.keys, later.groups.keys]))
    bucket = samples.owners.split(keys)[1]
    start, end = (int((m - _EPOCH).total_seconds() // BUCKET_S) for m in (first, last))
    keys = keys[(bucket >= start) & (bucket < end)]
    own, reaching = find_groups(keys, samples.groups), find_groups(keys, later.groups)
    return Buckets(keys, samples, own, later, reaching)


def _name_keys(buckets: Buckets, cluster: str) -> dict[str, pa.Array]:
    owners, columns = buckets.samples.owners, buckets.samples.columns
    device, bucket, owner = owners.split(buckets.keys)
    named = {"device": device, "namespace": owners.namespaces[owner], "pod": owners.pods[owner]}
    return {
        "cluster": pa.repeat(pa.scalar(cluster), len(device)),
        "bucket": pa.array(bucket * BUCKET_US, pa.timestamp("us")),
        **{name: take_texts(columns[name].texts, ranks) for name, ranks in named.items()},
    }


def _sum_seconds(buckets: Buckets) -> dict[str, pa.Array]:
    """Return the seconds of each class, at most 300 of a device in a bucket.

    Where the samples of a device are valid for more, the rows of all its owners are scaled down in
    proportion.
    """
    samples, later = buckets.samples, buckets.later
    at, valid_us, classes = (samples.columns[n].values for n in ("at_us", "valid_us", "class"))
    seconds = np.minimum(valid_us, BUCKET_US - measure_offset(at)) / 1e6
    sums = np.zeros((len(buckets.keys), len(CLASSES)))
    for groups, weights, numbers, places in (
        (samples.groups, seconds, classes, buckets.own),
        (later.groups, later.seconds, classes[later.rows], buckets.reaching),
    ):
        cells = groups.numbers * len(CLASSES) + numbers
        summed = np.bincount(cells, weights, len(groups.keys) * len(CLASSES))
        there = places >= 0
        sums[there] += summed.reshape(-1, len(CLASSES))[places[there]]
    covered = sums.sum(axis=1)
    if len(covered):
        devices = buckets.keys // len(samples.owners.pods)  # with their buckets
        starts = np.flatnonzero(np.diff(devices, prepend=-1))
        whole = np.maximum(np.add.reduceat(covered, starts), BUCKET_S)
        share = np.repeat(BUCKET_S / whole, np.diff(starts, append=len(devices)))
        covered, sums = covered * share, sums * share[:, np.newaxis]
    return {
        "covered_s": pa.array(covered.astype(np.float32)),
        **{name: pa.array(sums[:, n].astype(np.float32)) for n, name in enumerate(CLASSES)},
    }


def _count_bins(buckets: Buckets) -> dict[str, pa.Array]:
    """Return the histogram of the activity."""
    column, groups = buckets.samples.columns["bin"], buckets.samples.groups
    cells = groups.numbers * BINS + column.values
    counted = np.zeros(len(groups.keys) * BINS, np.int32)
    for place in groups.list_places():
        # One sample of each group: no cell comes twice.
        here = cells[place] if column.valid is None else cells[place][column.valid[place]]
        counted[here] += 1
    counts = counted.reshape(-1, BINS)[buckets.own]
    counts[buckets.own < 0] = 0
    offsets = np.arange(0, counts.size + 1, BINS, dtype=np.int32)
    return {"act_hist": pa.ListArray.from_arrays(offsets, counts.ravel())}


def _reduce_column(buckets: Buckets, sample: str) -> dict[str, pa.Array]:
    """Return the columns of the rollup that follow from one column of the samples."""
    samples, later = buckets.samples, buckets.later
    column, schema, arrays = samples.columns[sample], tables.get_schema("rollup_5m"), {}
    for row in load_reductions():
        if row.sample != sample:
            continue
        result = _place(reduce_groups(row.reduction, column, samples.groups), buckets.own)
        if row.reach and result.valid is not None:
            other = reduce_groups(row.reduction, take_rows(column, later.rows), later.groups)
            result = _fill(result, _place(other, buckets.reaching))
        if row.reduction == "count" and result.valid is not None:
            result = SampleColumn(np.where(result.valid, result.values, 0))
        arrays[row.column] = write_array(result, schema.field(row.column).type, column.texts)
        if row.column == "interval_s":
            arrays["expected"] = _expect_samples(result)
    return arrays


def _expect_samples(interval: SampleColumn) -> pa.Array:
    seconds = interval.values
    count = np.divide(BUCKET_S, seconds, out=np.zeros(len(seconds)), where=seconds > 0)
    return pa.array(count.astype(np.float32), mask=seconds <= 0)


def write_array(column: SampleColumn, kind: pa.DataType, texts: pa.Array | None) -> pa.Array:
    """Return a column of a rollup as an Arrow array of its type."""
    if texts is not None:
        ranks = column.values
        return take_texts(
            texts, ranks if column.valid is None else np.where(column.valid, ranks, -1)
        )
    mask = None if column.valid is None else ~column.valid
    return pa.array(column.values.astype(kind.to_pandas_dtype(), copy=False), mask=mask)


def _read_valid(column: SampleColumn) -> Flags:
    return np.ones(len(column.values), np.bool_) if column.valid is None else column.valid


def _place(column: SampleColumn, places: Ints) -> SampleColumn:
    """Return the values of groups at the places of the rows; null where a row has no group."""
    if not len(column.values):
        return SampleColumn(np.zeros(len(places), column.values.dtype), np.zeros(len(places), "?"))
    there = places >= 0
    if there.all():
        valid = None if column.valid is None else column.valid[places]
    else:
        valid = there & _read_valid(column)[places]
    return SampleColumn(column.values[places], valid)


def _fill(column: SampleColumn, other: SampleColumn) -> SampleColumn:
    """Return the values of a column, and where they are null those of the other one."""
    if column.valid is None:
        return column
    values = np.where(column.valid, column.values, other.values)
    return SampleColumn(values, column.valid | _read_valid(other))


def reduce_groups(reduction: str, column: SampleColumn, groups: Groups) -> SampleColumn:
    """Return one value per group of values that lie in the groups' order."""
    values, valid, count = column.values, column.valid, len(groups.keys)
    if not count:
        return SampleColumn(np.empty(0, values.dtype))
    if valid is not None and is_shared(valid) and not valid[0]:
        nothing = SampleColumn(np.broadcast_to(values[0], count), np.broadcast_to(np.False_, count))
        return SampleColumn(np.zeros(count, np.int64)) if reduction == "count" else nothing
    counts = groups.lengths() if valid is None else fold_groups(np.add, valid, groups, np.int64)
    some = None if valid is None else counts > 0
    match reduction:
        case "count":
            return SampleColumn(counts)
        case "mean":
            kind = np.float64 if values.dtype.kind == "f" else np.int64
            sums = fold_groups(np.add, values, groups, kind)
            return SampleColumn(sums / np.maximum(counts, 1), some)
        case "sum" | "or":
            operation = np.add if reduction == "sum" else np.bitwise_or
            return SampleColumn(fold_groups(operation, values, groups), some)
        case _:
            return SampleColumn(_find_end(reduction, values, valid, groups), some)


def fold_groups(
    operation: np.ufunc, values: Array, groups: Groups, kind: type[np.generic] | None = None
) -> Array:
    """Return the values of each group joined by an operation, in the order of their places."""
    first, *others = groups.list_places()
    result = values[first].astype(kind or values.dtype)
    for place in others:
        part = result[: place.stop - place.start]
        operation(part, values[place], out=part)
    return result


def _find_end(reduction: str, values: Array, valid: Flags | None, groups: Groups) -> Array:
    kind = values.dtype
    greatest = reduction == "greatest"
    # Not a number is greater than any number, as in the engine.
    low, high = (-np.inf, np.nan) if kind.kind == "f" else (np.iinfo(kind).min, np.iinfo(kind).max)
    if is_shared(values):
        return np.broadcast_to(values[0], len(groups.keys))
    if valid is not None:
        values = np.where(valid, values, kind.type(low if greatest else high))
    return fold_groups(np.maximum if greatest else np.fmin, values, groups)
