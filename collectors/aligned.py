"""Assemble wide rows of devices whose metrics were scraped together: column beside column.

An exporter answers all metrics of a device in one scrape, so that its series have the same
timestamps. The values of such series are the columns of its rows as they are: no value needs to be
placed by itself, which `collectors.assemble` does for all others. The rows are the same.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from collectors.frame import TOTAL, bound_values, build_batch, build_numbers, build_words
from collectors.series_codes import (
    ATTRIBUTES,
    DEVICE,
    OWNER,
    SHARED,
    TARGET,
    WEAK,
    Bools,
    CodedSeries,
    Floats,
    Ints,
    SeriesCatalog,
)
from fallow.tables import Batch

Timestamps = npt.NDArray[np.datetime64]
_PARENT = TARGET + 1 + ATTRIBUTES.index("parent")
A = TypeVar("A", bound=npt.NDArray[Any])


class MetricSamples(msgspec.Struct, frozen=True):
    """Samples of one metric, series after series: which known series, how many, when, how much."""

    places: Ints
    lengths: Ints
    ts: Timestamps
    values: Floats

    def __len__(self) -> int:
        """Return how many samples there are."""
        return len(self.values)

    @property
    def series(self) -> Ints:
        """The series of each sample."""
        return np.repeat(self.places, self.lengths)

    @property
    def starts(self) -> Ints:
        """Where each series begins."""
        return np.cumsum(self.lengths) - self.lengths

    def take(self, wanted: Bools) -> "MetricSamples":
        """Return the samples of some of the series."""
        if wanted.all():
            return self
        inside = np.repeat(wanted, self.lengths)
        return MetricSamples(
            self.places[wanted], self.lengths[wanted], self.ts[inside], self.values[inside]
        )

    def cut(self, first: np.datetime64, end: np.datetime64) -> "MetricSamples":
        """Return the samples in [first, end)."""
        inside = (self.ts >= first) & (self.ts < end)
        numbers = np.repeat(np.arange(len(self.places)), self.lengths)
        lengths = np.bincount(numbers[inside], minlength=len(self.places))
        some = lengths > 0
        return MetricSamples(self.places[some], lengths[some], self.ts[inside], self.values[inside])


class AlignedRows(msgspec.Struct, frozen=True):
    """Rows of devices, device after device: their times, and the columns that have values."""

    catalog: SeriesCatalog
    ts: Timestamps
    identity: Ints
    """The code of each row's identity."""
    interval_s: Floats
    columns: dict[str, Floats]
    rejected: int
    clipped: int

    def build_batch(
        self, first: np.datetime64, end: np.datetime64, *, cluster: str, source: str
    ) -> Batch | None:
        """Return the `sample` rows in [first, end); None where there are none."""
        rows: Any = np.flatnonzero((self.ts >= first) & (self.ts < end))
        if not len(rows):
            return None
        if len(rows) == len(self.ts):
            rows = slice(None)
        catalog, ts = self.catalog, self.ts[rows]
        owners = catalog.table[self.identity[rows]]
        data: dict[str, pa.Array] = {
            "ts": pa.array(ts),
            "device": build_words(catalog.devices, owners[:, DEVICE]),
            "interval_s": pa.array(self.interval_s[rows]),
        }
        for n, name in enumerate(ATTRIBUTES):
            data[name] = build_words(catalog.words(name), owners[:, TARGET + 1 + n])
        for n, name in enumerate(("namespace", "pod", "container")):
            data[name] = build_words([o[n] for o in catalog.owners], owners[:, OWNER])
        for name, values in self.columns.items():
            data[name] = build_numbers(values[rows], "sample", name)
        return build_batch("sample", data, {"cluster": cluster, "source": source}, len(ts))


def align(
    catalog: SeriesCatalog,
    coded: CodedSeries,
    metric_samples: Sequence[MetricSamples],
    interval_s: Floats,
) -> tuple[AlignedRows, list[MetricSamples]]:
    """Divide samples into rows of devices with aligned series, and those of all other devices.

    Metrics with more samples come first; each has one column. `interval_s`: of each known series.
    Aligned are devices whose series have the timestamps and the owner of their series of one
    metric, the grid. Devices that are shared or divided, or that several sources name,
    are not.
    """
    table = catalog.build_table()
    device_of, owner_of = (table[coded.identity, n] for n in (DEVICE, OWNER))
    simple = _find_simple_devices(catalog, table, coded, metric_samples)
    grid = _choose_grid(metric_samples, device_of, simple)
    simple &= _find_present(device_of[grid.places], len(simple))
    simple[_find_overlaps(grid, device_of)] = False
    matches = []
    for samples in metric_samples:
        matches.append(_match(grid, samples, device_of, owner_of))
        simple[device_of[samples.places[matches[-1] < 0]]] = False
    of_grid = simple[device_of[grid.places]]
    rows = grid.take(of_grid)
    # The place of a series' first row, by its number in the grid.
    first_rows = np.cumsum(np.where(of_grid, grid.lengths, 0)) - np.where(of_grid, grid.lengths, 0)
    columns: dict[str, Floats] = {}
    rejected = clipped = 0
    others = []
    for samples, numbers in zip(metric_samples, matches, strict=True):
        of_rows = simple[device_of[samples.places]]
        if not of_rows.all():
            others.append(samples.take(~of_rows))
        for again in _list_layers(numbers, of_rows):
            part = samples.take(again)
            values, refused, over = _scale(catalog, coded, part)
            rejected += refused
            clipped += over
            column = _place_values(values, part.lengths, first_rows[numbers[again]], len(rows))
            measure = catalog.measures[coded.measure[part.places[0]]]
            name = measure.column
            columns[name] = (
                _COMBINE[measure.combine](columns[name], column) if name in columns else column
            )
    _compute_free_memory(columns)
    return (
        AlignedRows(
            catalog,
            rows.ts,
            np.repeat(coded.identity[rows.places], rows.lengths),
            np.repeat(interval_s[rows.places], rows.lengths),
            columns,
            rejected,
            clipped,
        ),
        others,
    )


def _join_bits(first: Floats, second: Floats) -> Floats:
    both = ~(np.isnan(first) | np.isnan(second))
    bits = np.where(both, first, 0).astype(np.int64) | np.where(both, second, 0).astype(np.int64)
    return np.where(both, bits, np.where(np.isnan(first), second, first))


_COMBINE: Mapping[str, Callable[[Floats, Floats], Floats]] = {
    "max": np.fmax,
    "min": np.fmin,
    "or": _join_bits,
}
"""How several metrics with one meaning are one value, by `combine` of `metrics.csv`."""


def _find_simple_devices(
    catalog: SeriesCatalog, table: Ints, coded: CodedSeries, metric_samples: Sequence[MetricSamples]
) -> Bools:
    """Return the devices that one source names in one way, undivided and shared by nobody."""
    simple = np.ones(len(catalog.devices), np.bool_)
    series = np.unique(np.concatenate([samples.places for samples in metric_samples]))
    measures = catalog.measures
    plain = np.array([m.table == "sample" and not m.spill for m in measures])
    identity = coded.identity[series]
    own = table[identity]
    bad = ~plain[coded.measure[series]]
    bad |= (own[:, SHARED] > 0) | (own[:, WEAK] > 0) | (own[:, _PARENT] >= 0)
    simple[own[bad, DEVICE]] = False
    parents = (catalog.device_code(name) for name in catalog.words("parent"))
    simple[[code for code in parents if code >= 0]] = False
    named = np.unique(own[:, [DEVICE, *range(TARGET, own.shape[1])]], axis=0)
    simple[named[1:][named[1:, 0] == named[:-1, 0], 0]] = False
    return simple


def _find_present(devices: Ints, count: int) -> Bools:
    present = np.zeros(count, np.bool_)
    present[devices] = True
    return present


def _choose_grid(
    metric_samples: Sequence[MetricSamples], device_of: Ints, simple: Bools
) -> MetricSamples:
    """Return the metric with the most samples of which no device has two series at once."""
    for samples in metric_samples:
        fit = simple[device_of[samples.places]].any()
        if fit and not simple[_find_overlaps(samples, device_of)].any():
            return samples
    return metric_samples[0]


def _find_overlaps(samples: MetricSamples, device_of: Ints) -> Ints:
    """Return devices of which two series have samples in the same stretch of time."""
    devices, starts = device_of[samples.places], samples.starts
    first, last = samples.ts[starts], samples.ts[starts + samples.lengths - 1]
    order = np.lexsort((first, devices))
    devices, first, last = devices[order], first[order], last[order]
    overlaps = (devices[1:] == devices[:-1]) & (first[1:] <= last[:-1])
    overlapping: Ints = devices[1:][overlaps]
    return overlapping


def _list_layers(numbers: Ints, used: Bools) -> Iterator[Bools]:
    """Yield the series that are used, so that no two of one layer have the same rows."""
    while used.any():
        layer = np.zeros(len(used), np.bool_)
        places = np.flatnonzero(used)
        layer[places[np.unique(numbers[places], return_index=True)[1]]] = True
        yield layer
        used = used & ~layer


def _match(grid: MetricSamples, samples: MetricSamples, device_of: Ints, owner_of: Ints) -> Ints:
    """Return which series of the first metric has the device, owner and times of each; or -1."""
    numbers = np.arange(len(grid.places))
    if samples is grid:
        return numbers
    device, owner = device_of[samples.places], owner_of[samples.places]
    if (
        np.array_equal(samples.lengths, grid.lengths)
        and np.array_equal(device, device_of[grid.places])
        and np.array_equal(owner, owner_of[grid.places])
        and np.array_equal(samples.ts, grid.ts)
    ):
        return numbers
    grid_starts, starts = grid.starts, samples.starts
    keys = zip(
        device_of[grid.places].tolist(),
        grid.ts[grid_starts].tolist(),
        grid.lengths.tolist(),
        owner_of[grid.places].tolist(),
        strict=True,
    )
    numbers_of = {key: number for number, key in enumerate(keys)}
    wanted = zip(
        device.tolist(),
        samples.ts[starts].tolist(),
        samples.lengths.tolist(),
        owner.tolist(),
        strict=True,
    )
    matched = np.array([numbers_of.get(key, -1) for key in wanted], np.int64)
    for number, of_grid in enumerate(matched.tolist()):
        if of_grid >= 0:
            length = samples.lengths[number]
            ours, theirs = starts[number], grid_starts[of_grid]
            same = np.array_equal(
                samples.ts[ours : ours + length], grid.ts[theirs : theirs + length]
            )
            matched[number] = of_grid if same else -1
    return matched


def _scale(
    catalog: SeriesCatalog, coded: CodedSeries, samples: MetricSamples
) -> tuple[Floats, int, int]:
    """Return values in the column's unit, NaN where refused; how many are refused and clipped."""
    measures = catalog.measures
    codes = coded.measure[samples.places]
    scale, low, high = (
        _repeat(np.array([getattr(m, name) for m in measures])[codes], samples.lengths)
        for name in ("scale", "low", "high")
    )
    with np.errstate(over="ignore", invalid="ignore"):
        values, refused, clipped = bound_values(samples.values * scale, low, high)
    ored = np.array([m.combine == "or" for m in measures])[codes]
    if ored.any():
        bits = np.repeat(coded.bits[samples.places], samples.lengths)
        used = np.repeat(ored & (coded.bits[samples.places] > 0), samples.lengths) & ~refused
        values = np.where(used, bits * (values > 0), values)
        whole = np.repeat(ored, samples.lengths) & ~used
        values = np.where(whole, np.trunc(values), values)
    count = int(np.count_nonzero(refused))
    if count:
        values[refused] = np.nan
    return values, count, int(np.count_nonzero(clipped))


def _repeat(of_series: A, lengths: Ints) -> A | Any:
    """Return a value per sample, or one where all are the same."""
    return of_series[0] if (of_series == of_series[0]).all() else np.repeat(of_series, lengths)


def _place_values(values: Floats, lengths: Ints, first_rows: Ints, rows: int) -> Floats:
    """Return values at their rows; NaN where a row has none."""
    starts = np.cumsum(lengths) - lengths
    if len(values) == rows and np.array_equal(first_rows, starts):
        return values
    column = np.full(rows, np.nan)
    column[np.repeat(first_rows - starts, lengths) + np.arange(len(values))] = values
    return column


def _compute_free_memory(columns: dict[str, Floats]) -> None:
    """Compute `mem_free_bytes` where a source reports total and used memory instead."""
    total = columns.pop(TOTAL, None)
    if total is None or "mem_used_bytes" not in columns:
        return
    free = total - columns["mem_used_bytes"]
    free = np.where(free >= 0, free, np.nan)
    reported = columns.get("mem_free_bytes", np.full(len(free), np.nan))
    columns["mem_free_bytes"] = np.where(np.isnan(reported), free, reported)
