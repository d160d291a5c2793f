"""Sort device samples by owner (device, namespace, pod) and 5-minute bucket, column by column.

All columns are arrays in one order: the first sample of each group, then the second of each, and so
on (`Groups`). One addition or comparison of two such parts serves all groups, which takes a third
of the time of NumPy's `reduceat` over groups of few samples.
"""

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

BUCKET_US = 300_000_000
MOST_RANKS = 2**16
"""Devices whose ranks have 16 bits."""

MOST_W = 2048
"""No GPU uses more."""
TIMED_COLUMNS = ("energy_mj", "gap_us", "reported_interval_s", "memory_bytes")
"""Measurements that devices need, or the sum of the energy, in the order of time."""

Array = npt.NDArray[Any]
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


class SampleColumn(msgspec.Struct, frozen=True):
    """A column of samples or of groups; `valid` is None where no value is null.

    Values of texts are their ranks among the sorted `texts`.
    """

    values: Array
    valid: Flags | None = None
    texts: pa.Array | None = None


class Groups(msgspec.Struct, frozen=True):
    """Samples of one owner in one bucket; the groups of more samples come first.

    First lies the first sample of each group, then the second sample of each group that has two,
    and so on: place n of all groups is [bounds[n], bounds[n + 1]), in the order of the groups.
    """

    keys: Ints
    """Device, then bucket, then owner of each group, in one number."""
    bounds: Ints
    numbers: Ints
    """The group of each sample."""

    def list_places(self) -> Iterator[slice]:
        """Yield the samples at each place, the first one first."""
        for first, last in pairwise(self.bounds.tolist()):
            yield slice(first, last)

    def lengths(self) -> Ints:
        """Return how many samples each group has."""
        numbers = np.arange(len(self.keys))
        return np.searchsorted(-np.diff(self.bounds), -numbers)


class OwnerKeys(msgspec.Struct, frozen=True):
    """How a key is made up, and the texts of the owners."""

    first_bucket: int
    buckets: int
    namespaces: Ints
    pods: Ints

    def split(self, keys: Ints) -> tuple[Ints, Ints, Ints]:
        """Return the device, bucket (since 1970) and owner of keys."""
        places, owners = np.divmod(keys, len(self.pods))
        devices, buckets = np.divmod(places, self.buckets)
        return devices, buckets + self.first_bucket, owners


class TimedSamples(msgspec.Struct, frozen=True):
    """Samples by device and time: the columns that need this order, and what the others need."""

    columns: dict[str, SampleColumn]
    label: Array
    """The row of each sample in `labels`."""
    labels: Mapping[str, SampleColumn]
    parts: dict[str, list[pa.Array]]
    """The other columns, as they came."""
    order: Ints
    """The places of the samples among those that came."""


class SortedSamples(msgspec.Struct, frozen=True):
    """All samples in the order of their groups."""

    columns: Mapping[str, SampleColumn]
    groups: Groups
    owners: OwnerKeys


class LaterSamples(msgspec.Struct, frozen=True):
    """Samples that are valid in later buckets than their own, once for each such bucket."""

    rows: Ints
    """Their places among all samples."""
    groups: Groups
    seconds: Array
    """How long they are valid in that bucket."""


def sort_by_time(
    batches: Iterable[pa.RecordBatch], labels: pa.Table, pool: ThreadPoolExecutor
) -> TimedSamples | None:
    """Return the samples of `rollup/classified.sql` by device and time; None without rows.

    The columns of `rollup/labels.sql` take the place of `label`. `energy_mj` is no more the
    counter, but its increase up to each sample (`_measure_energy`).
    """
    parts = _gather_columns(batches, labels["label"])
    if not parts:
        return None
    label = pa.chunked_array(parts.pop("label")).to_numpy()
    named = _read_labels(labels)
    at = read_column(pa.chunked_array(parts.pop("at_us")))
    order = _order_by_time(at.values, named["device"].values[label])
    label = label[order]
    columns = {
        "at_us": take_rows(at, order),
        **_take_parts(parts, TIMED_COLUMNS, order, pool),
        **_take_columns(named, label, pool),
    }
    columns["energy_mj"] = _measure_energy(columns)
    return TimedSamples(columns, label, named, parts, order)


def _take_columns(
    columns: Mapping[str, SampleColumn], rows: Ints, pool: ThreadPoolExecutor
) -> dict[str, SampleColumn]:
    """Return the rows of columns, each taken by a thread."""
    return dict(zip(columns, pool.map(lambda c: take_rows(c, rows), columns.values()), strict=True))


def _take_parts(
    parts: dict[str, list[pa.Array]], names: Iterable[str], order: Ints, pool: ThreadPoolExecutor
) -> dict[str, SampleColumn]:
    """Return columns in an order; their parts are let go, each by the thread that read it."""
    names = tuple(names)
    read = pool.map(lambda n: take_rows(read_column(pa.chunked_array(parts.pop(n))), order), names)
    return dict(zip(names, read, strict=True))


def _read_labels(labels: pa.Table) -> dict[str, SampleColumn]:
    """Return the columns of labels; an owner without a name is '' so that it can be a key."""
    columns = {name: labels[name] for name in labels.column_names if name != "label"}
    columns |= {name: columns[name].fill_null("") for name in ("namespace", "pod")}
    return {name: read_column(column) for name, column in columns.items()}


def list_later(samples: SortedSamples) -> LaterSamples:
    """Return the samples that are valid in later buckets than their own."""
    at, valid_us = (samples.columns[name].values for name in ("at_us", "valid_us"))
    groups, reach, nothing = samples.groups, measure_offset(at) + valid_us, np.empty(0, np.int64)
    rows, keys, seconds = [nothing], [nothing], [np.empty(0)]
    left, number = np.flatnonzero(reach > BUCKET_US), 1
    while len(left):
        rows.append(left)
        keys.append(groups.keys[groups.numbers[left]] + number * len(samples.owners.pods))
        seconds.append(np.minimum(reach[left] - number * BUCKET_US, BUCKET_US) / 1e6)
        number += 1
        left = left[reach[left] > number * BUCKET_US]
    order, later = group_keys(np.concatenate(keys))
    return LaterSamples(np.concatenate(rows)[order], later, np.concatenate(seconds)[order])


def measure_offset(at: Ints) -> Ints:
    """Return how long after the begin of its bucket a sample is, in microseconds."""
    return at - at // BUCKET_US * BUCKET_US  # a remainder takes four times as long


def sort_distinct(keys: Ints) -> Ints:
    """Return the distinct keys in order; NumPy's `unique` would hash them, which is slower."""
    if (keys[1:] > keys[:-1]).all():
        return keys
    ordered = np.sort(keys, kind="stable")  # it merges sorted parts
    changes = np.ones(len(ordered), np.bool_)
    changes[1:] = ordered[1:] != ordered[:-1]
    return ordered[changes]


def find_groups(keys: Ints, groups: Groups) -> Ints:
    """Return which group has each key; -1 where none has it."""
    if not len(groups.keys):
        return np.full(len(keys), -1)
    by_key = np.argsort(groups.keys, kind="stable")
    places = np.searchsorted(groups.keys[by_key], keys)
    nearest = by_key[np.minimum(places, len(by_key) - 1)]
    return np.where(groups.keys[nearest] == keys, nearest, -1)


def take_rows(column: SampleColumn, rows: Ints) -> SampleColumn:
    """Return the rows of a column."""
    valid = None if column.valid is None else _take(column.valid, rows)
    return SampleColumn(_take(column.values, rows), valid, column.texts)


def is_shared(values: Array) -> bool:
    """Return whether all values are one in memory, as `read_column` makes equal ones."""
    return values.strides == (0,)


def _take(values: Array, rows: Ints) -> Array:
    if len(values) and is_shared(values):
        return np.broadcast_to(values[0], len(rows))
    return values[rows]


def _share_value(values: Array) -> Array:
    """Return one value for all where they are equal to the bit: nothing copies or sorts it."""
    bits = values.view(f"i{values.itemsize}")
    if len(bits) > 1 and bits[0] == bits[-1] and (bits == bits[0]).all():
        return np.broadcast_to(values[0], len(values))
    return values


def _gather_columns(
    batches: Iterable[pa.RecordBatch], labels: pa.ChunkedArray
) -> dict[str, list[pa.Array]]:
    """Return the parts of each column; the number of a label becomes its row in `labels`."""
    parts: dict[str, list[pa.Array]] = {}
    for batch in batches:
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            row = pc.index_in(column, value_set=labels) if name == "label" else column
            parts.setdefault(name, []).append(row)
    return parts


def read_column(column: pa.ChunkedArray) -> SampleColumn:
    """Return an Arrow column as arrays; of texts, their ranks.

    Equal values without a null, such as the model and the interval of most fleets, are one in
    memory.
    """
    if column.null_count == len(column) and len(column):
        is_text = pa.types.is_string(column.type)
        value = np.int32(-1) if is_text else column.type.to_pandas_dtype()(0)
        texts = pa.array([], pa.string()) if is_text else None
        return SampleColumn(
            np.broadcast_to(value, len(column)), np.broadcast_to(np.False_, len(column)), texts
        )
    if pa.types.is_string(column.type):
        column = column.dictionary_encode()
    if pa.types.is_dictionary(column.type):
        whole = column.unify_dictionaries().combine_chunks()
        if len(whole.dictionary) == 1 and not whole.null_count:
            return SampleColumn(np.broadcast_to(np.int32(0), len(whole)), None, whole.dictionary)
        order = pc.sort_indices(whole.dictionary)
        ranks = np.full(len(order) + 1, -1, np.int32)
        ranks[order.to_numpy()] = np.arange(len(order))
        codes = whole.indices.fill_null(len(order)).to_numpy()
        values = ranks[codes]
        valid = values >= 0 if whole.null_count else None
        return SampleColumn(values, valid, whole.dictionary.take(order))
    if not column.null_count:
        return SampleColumn(_share_value(column.to_numpy()))
    return SampleColumn(column.fill_null(0).to_numpy(), column.is_valid().to_numpy())


def _order_by_time(at: Ints, device: Array) -> Ints:
    # The stable sort is a radix sort of 16 bits, and of more bits it merges what is sorted.
    if device.max() < MOST_RANKS and (at[1:] >= at[:-1]).all():
        return np.argsort(device.astype(np.uint16), kind="stable")
    began = at.min()
    key = device.astype(np.int64) * (int(at.max() - began) + 1) + (at - began)
    return np.argsort(key, kind="stable")


def _measure_energy(columns: Mapping[str, SampleColumn]) -> SampleColumn:
    """Return the increase of the energy counter up to each sample, null where it is not known.

    A drop counts from zero (a driver reload) where a GPU can have used so much since the sample
    before; else the counter went backward, and the increase is unknown. Over a longer gap nothing
    is counted: how the energy was spread over it is unknown.
    """
    counter = columns["energy_mj"]
    at, device, gap = (columns[name].values for name in ("at_us", "device", "gap_us"))
    energy, valid = np.zeros(len(at), np.int64), np.zeros(len(at), np.bool_)
    rows = slice(None) if counter.valid is None else np.flatnonzero(counter.valid)
    used, at, device, gap = counter.values[rows], at[rows], device[rows], gap[rows]
    counts = (device[1:] == device[:-1]) & (at[1:] - at[:-1] <= gap[1:])
    rises = used[1:] >= used[:-1]
    # Watts are millijoules per millisecond.
    counts &= rises | (used[1:] <= (at[1:] - at[:-1]) // 1000 * MOST_W)
    increase = used[1:] - np.where(rises, used[:-1], 0)
    energy[rows] = np.append(0, np.where(counts, increase, 0))[: len(used)]
    valid[rows] = np.append(False, counts)[: len(used)]
    return SampleColumn(energy, valid)


def group_by_owner(samples: TimedSamples, pool: ThreadPoolExecutor) -> SortedSamples:
    """Return the samples by owner and bucket."""
    timed, parts = samples.columns, samples.parts
    bucket = timed["at_us"].values // BUCKET_US
    device, namespace, pod = (timed[name].values for name in ("device", "namespace", "pod"))
    changes = np.ones(len(bucket), np.bool_)
    changes[1:] = bucket[1:] != bucket[:-1]
    for column in (device, namespace, pod):
        changes[1:] |= column[1:] != column[:-1]
    starts = np.flatnonzero(changes)
    names, owner = np.unique(
        namespace[starts].astype(np.int64) * 2**32 + pod[starts], return_inverse=True
    )
    first = int(bucket.min())
    longest = pc.max(pa.chunked_array(parts["valid_us"])).as_py()
    owners = OwnerKeys(
        first,
        int(bucket.max()) - first + longest // BUCKET_US + 2,
        *np.divmod(names, 2**32),
    )
    places = device[starts].astype(np.int64) * owners.buckets + (bucket[starts] - first)
    keys = places * len(names) + owner
    order, groups = group_runs(keys, starts, len(bucket))
    label = samples.label[order]
    columns = {
        **{name: take_rows(timed[name], order) for name in ("at_us", "energy_mj")},
        **_take_columns(samples.labels, label, pool),
        **_take_parts(parts, list(parts), samples.order[order], pool),
    }
    return SortedSamples(columns, groups, owners)


def group_runs(keys: Ints, starts: Ints, count: int) -> tuple[Ints, Groups]:
    """Return the order of samples by groups, and the groups, of runs of samples of one key."""
    if len(sort_distinct(keys)) < len(keys):  # owners that take turns
        return group_keys(np.repeat(keys, np.diff(starts, append=count)))
    return _sort_groups(keys, starts, count)


def group_keys(keys: Ints) -> tuple[Ints, Groups]:
    """Return the order of samples by the groups of equal keys, and these groups."""
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    starts = np.flatnonzero(np.diff(ordered, prepend=-1))
    places, groups = _sort_groups(ordered[starts], starts, len(keys))
    return order[places], groups


def _sort_groups(keys: Ints, starts: Ints, count: int) -> tuple[Ints, Groups]:
    """Return the order that groups need, and the groups, of samples that lie by group."""
    lengths = np.diff(starts, append=count)
    order = np.argsort(-lengths, kind="stable")
    keys, starts, lengths = keys[order], starts[order], lengths[order]
    longest = int(lengths[0]) if len(lengths) else 0
    counts = np.searchsorted(-lengths, -np.arange(longest))
    bounds = np.append(0, np.cumsum(counts))
    rows, numbers = np.empty((2, count), np.int64)
    for place, (first, last) in enumerate(pairwise(bounds.tolist())):
        rows[first:last] = starts[: last - first] + place
        numbers[first:last] = np.arange(last - first)
    return rows, Groups(keys, bounds, numbers)


def take_texts(texts: pa.Array | None, ranks: Array) -> pa.Array:
    """Return texts by their ranks; null where a rank is negative."""
    if texts is None or not len(texts):
        return pa.nulls(len(ranks), pa.string())
    return texts.take(pa.array(ranks, mask=ranks < 0))
