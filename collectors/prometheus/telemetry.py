"""Build `sample` and `holding` rows, and their gaps, from device series of one chunk of time.

A row is wide and written once, so every metric of a chunk is fetched before its rows are built. A
chunk is kept as numbers (16 bytes per sample) and turned into rows slice by slice of time.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta

import msgspec
import numpy as np

from collectors.aligned import MetricSamples, align
from collectors.assemble import assemble
from collectors.prometheus.client import PrometheusClient
from collectors.prometheus.decode import (
    Floats,
    Matrix,
    Timestamps,
    decode_labels,
    decode_names,
    decode_vector,
)
from collectors.prometheus.grid import read_thinned
from collectors.prometheus.raw import build_selector, read_samples
from collectors.prometheus.remote_read import RemoteReader
from collectors.series import find_node, list_labels_of, measure_of, read_metrics, resolve
from collectors.series_codes import CodedSeries, Ints, SeriesCatalog
from fallow.errors import AuthError, NoSeriesError, SourceError
from fallow.tables import Batch
from fallow.window import Window

SOURCE = "prometheus"
SLICE = 1_000_000
"""Values turned into rows at once: about 0.4 GB of memory."""
RECENT = timedelta(minutes=30)
"""Time over which a node's current interval is measured: 3 samples at the longest interval."""
_SCRAPE_SIGNALS = ("mem_used_bytes", "power_w", "gr_engine_active", "gpu_util_pct")
"""Columns that nearly every device has; they show which nodes were there before."""
_SNAP = 0.1
"""A device whose interval differs less than this from the fleet's has the fleet's."""


class ScrapeTimes(msgspec.Struct, frozen=True):
    """When each node was scraped, and each device's interval (by device code, in seconds).

    Each scrape of a node once, in the order of `node` and `ts`.
    """

    nodes: list[str]
    node: Ints
    ts: Timestamps
    node_interval_s: Floats
    interval_s: Floats


class TelemetryChunk(msgspec.Struct):
    """The data of one chunk of time."""

    window: Window
    samples: int
    scrape_times: ScrapeTimes
    metric_samples: list[MetricSamples]
    rejected: int = 0
    clipped: int = 0

    def describe(self) -> "TelemetryChunk":
        """Return the chunk without its samples: when each node was scraped, and the counts."""
        return msgspec.structs.replace(self, metric_samples=[])


class Telemetry:
    """Stores the known series of one server. Two threads must not use it at the same time."""

    def __init__(
        self,
        client: PrometheusClient,
        *,
        cluster: str,
        step: timedelta,
        matchers: str = "",
        only: Sequence[str] = (),
    ) -> None:
        self._client = client
        self._cluster = cluster
        self._step_s = step.total_seconds()
        self._grid: timedelta | None = None
        self._remote: RemoteReader | None = None
        self._matchers = matchers
        self._only = frozenset(only)
        self._catalog = SeriesCatalog()
        self._rows: dict[bytes, int] = {}
        self._parts: list[CodedSeries] = []
        self._devices = Names()
        self._nodes = Names()
        self._device_of: list[int] = []
        self._node_of: list[int] = []

    def thin(self, step: timedelta) -> None:
        """Read one sample per stretch of the clock's grid from now on: the server thins."""
        self._grid, self._step_s = step, step.total_seconds()

    def read_remotely(self, reader: RemoteReader) -> None:
        """Read samples by this reader from now on, where it can and where no matcher is set."""
        if not self._matchers:
            self._remote = reader

    def present(self, window: Window) -> dict[str, tuple[str, ...]]:
        """Return the metric names the server has in a window, by the column they fill.

        Raises:
            NoSeriesError: it has none.
        """
        names_present = [
            n for n in list_metric_names(self._client, window) if measure_of(n) is not None
        ]
        groups: dict[str, list[str]] = {}
        for name in names_present:
            measure = measure_of(name)
            if measure is not None and (not self._only or measure.column in self._only):
                groups.setdefault(f"{measure.table}.{measure.column}", []).append(name)
        if not groups:
            raise NoSeriesError(
                f"{self._client.url} has no GPU series between {window.start:%Y-%m-%d %H:%M} and "
                f"{window.end:%Y-%m-%d %H:%M} UTC",
                hint="does it scrape dcgm-exporter, HAMi, AMD's or Ascend's exporter? "
                "fallow doctor says what is there",
            )
        return {
            column: tuple(sorted(names_found)) for column, names_found in sorted(groups.items())
        }

    def density(
        self, groups: Mapping[str, Sequence[str]], window: Window, step: timedelta | None = None
    ) -> float:
        """Return how many values a second of this window holds, thinned to a step (default: ours).

        Measured at the window's end, else its middle, else its start; 0 = no values there.
        """
        all_series = build_selector(
            [n for names_found in groups.values() for n in names_found], self._matchers
        )
        signal_selector = build_selector(self.list_signal_names(groups), self._matchers)
        for share in (0.0, 0.5, 0.9):
            at = window.end - share * (window.end - window.start)
            count_rows = decode_vector(self._client.query(f"count({all_series})", at))
            scrapes = f"max(count_over_time({signal_selector}[10m]))"
            scrape_rows = decode_vector(self._client.query(scrapes, at))
            if count_rows and scrape_rows:
                step_s = self._step_s if step is None else step.total_seconds()
                return float(count_rows[0][1] * min(scrape_rows[0][1] / 600, 1 / step_s))
        return 0.0

    def before(
        self, groups: Mapping[str, Sequence[str]], window: Window
    ) -> tuple[dict[str, np.datetime64], dict[str, np.timedelta64]]:
        """Return when nodes with series in a window were last seen, and their recent interval."""
        by = ", ".join(dict.fromkeys((*list_labels_of("node"), "instance")))
        last_seen: dict[str, np.datetime64] = {}
        intervals: dict[str, np.timedelta64] = {}
        for name in self.list_signal_names(groups):
            series = build_selector([name], self._matchers)
            timestamps_expression, span = f"timestamp({series})", f"[{round(window.seconds)}s:5m]"
            # Steps are on the clock's grid: the newest sample may be five minutes after the last
            # step.
            for newest in (f"max_over_time({timestamps_expression}{span})", timestamps_expression):
                for node, value in self._by_node(f"max by ({by}) ({newest})", window.end):
                    last = np.datetime64(round(value * 1e6), "us")
                    last_seen[node] = max(last_seen.get(node, last), last)
            count = f"count_over_time({series}[{round(RECENT.total_seconds())}s])"
            for node, value in self._by_node(f"max by ({by}) ({count})", window.end):
                if value > 1:
                    interval = np.timedelta64(round(RECENT.total_seconds() / value * 1e6), "us")
                    intervals[node] = min(intervals.get(node, interval), interval)
        return last_seen, intervals

    def _by_node(self, query: str, at: datetime) -> Iterator[tuple[str, float]]:
        for label_set, value in decode_vector(self._client.query(query, at)):
            node = find_node(label_set)
            if node is not None:
                yield node, value

    def list_signal_names(self, groups: Mapping[str, Sequence[str]]) -> list[str]:
        """Return the names of a metric that nearly every device has."""
        column = next((f"sample.{c}" for c in _SCRAPE_SIGNALS if f"sample.{c}" in groups), None)
        return list(groups[column or next(iter(groups))])

    def fetch(self, names_found: Sequence[str], window: Window) -> Matrix:
        """Return the samples of some names; safe to run in another thread."""
        selected = build_selector(names_found, self._matchers)
        if self._grid is not None:
            return read_thinned(self._client, selected, window, self._grid)
        matrix = self._remote.read(names_found, window) if self._remote is not None else None
        if matrix is not None:
            return matrix
        return read_samples(self._client, selected, window)

    def chunk(self, window: Window, matrices: Iterator[Matrix]) -> TelemetryChunk:
        """Add every metric of a chunk of time."""
        samples_held, count = [], 0
        for matrix in matrices:
            count += len(matrix.values)
            samples_kept = self._take(matrix)
            if len(samples_kept):
                samples_held.append(samples_kept)
        samples_held.sort(key=len, reverse=True)
        return TelemetryChunk(window, count, self._scrape_times(samples_held), samples_held)

    def batches(self, chunk: TelemetryChunk) -> Iterator[Batch]:
        """Yield the chunk's rows in time order; count rejected and clipped values in the chunk."""
        if not chunk.metric_samples:
            return
        self._parts = [CodedSeries.joined(self._parts)]
        interval = chunk.scrape_times.interval_s
        aligned, others = align(
            self._catalog, self._parts[0], chunk.metric_samples, interval[self._device_of]
        )
        chunk.rejected += aligned.rejected
        chunk.clipped += aligned.clipped
        cuts = _cut_time(chunk)
        for first, end in itertools.pairwise(cuts):
            batch = aligned.build_batch(first, end, cluster=self._cluster, source=SOURCE)
            if batch is not None:
                yield batch
            yield from self._assemble(chunk, [part.cut(first, end) for part in others])

    def _assemble(
        self, chunk: TelemetryChunk, metric_samples: Sequence[MetricSamples]
    ) -> Iterator[Batch]:
        """Yield the rows of values whatever their times and their owners are."""
        series = np.concatenate([h.series for h in metric_samples] or [np.zeros(0, np.int64)])
        if not len(series):
            return
        ts = np.concatenate([h.ts for h in metric_samples])
        values = np.concatenate([h.values for h in metric_samples])
        codes = self._parts[0].take(series)
        sample_interval = chunk.scrape_times.interval_s[np.array(self._device_of)[series]]
        for seconds in np.unique(sample_interval).tolist():
            in_interval = sample_interval == seconds
            whole = bool(in_interval.all())
            assembled = assemble(
                self._catalog,
                codes if whole else codes.take(np.flatnonzero(in_interval)),
                ts if whole else ts[in_interval],
                values if whole else values[in_interval],
                cluster=self._cluster,
                interval_s=seconds,
                source=SOURCE,
            )
            chunk.rejected += assembled.rejected
            chunk.clipped += int(assembled.clipped.sum())
            yield from assembled.batches

    def _take(self, matrix: Matrix) -> MetricSamples:
        """Return the samples of known series, of each step the last one."""
        places = np.array([self._place(text) for text in matrix.labels], np.int64)
        lengths, ts, values = matrix.lengths, matrix.ts, matrix.values
        meant = places >= 0
        keep = None if meant.all() else np.repeat(meant, lengths)
        step_us = round(self._step_s * 1e6)
        spacing = np.diff(ts.astype(np.int64))
        starts = np.cumsum(lengths)[:-1]
        spacing[starts[(starts > 0) & (starts < len(ts))] - 1] = step_us  # of two series
        if len(spacing) and spacing.min() < step_us:
            step = ts.astype(np.int64) // step_us
            last = np.ones(len(ts), np.bool_)
            last[:-1] = step[1:] != step[:-1]
            last[starts[starts > 0] - 1] = True
            keep = last if keep is None else keep & last
        if keep is not None:
            numbers = np.repeat(np.arange(len(places)), lengths)
            lengths = np.bincount(numbers[keep], minlength=len(places))
            ts, values = ts[keep], values[keep]
        some = lengths > 0
        return MetricSamples(places[some], lengths[some], ts, values)

    def _place(self, text: bytes) -> int:
        place = self._rows.get(text)
        if place is None:
            label_set = decode_labels(text)
            series = resolve(label_set.pop("__name__", ""), label_set)
            place = -1
            if series is not None:
                place = len(self._device_of)
                self._device_of.append(self._devices.code(series.device))
                self._node_of.append(self._nodes.code(series.node))
                self._parts.append(self._catalog.code([series]))
            self._rows[text] = place
        return place

    def _scrape_times(self, samples_held: Sequence[MetricSamples]) -> ScrapeTimes:
        """Take each device's scrape times from its metric with the most samples."""
        device_of, node_of_ = np.array(self._device_of, int), np.array(self._node_of, int)
        devices_seen = np.zeros(len(self._devices.values), np.bool_)
        parts: list[MetricSamples] = []
        for samples_of in samples_held:
            device = device_of[samples_of.places]
            fresh = ~devices_seen[device]
            if fresh.any():
                parts.append(samples_of.take(fresh))
                devices_seen[device[fresh]] = True
        series = np.concatenate([p.series for p in parts]) if parts else np.zeros(0, np.int64)
        ts = np.concatenate([p.ts for p in parts]) if parts else np.zeros(0, "datetime64[us]")
        interval = _compute_median_spacing(series, device_of, ts, len(devices_seen))
        usual = float(np.nanmedian(interval)) if np.isfinite(interval).any() else self._step_s
        near = ~(np.abs(interval - usual) > _SNAP * usual)  # also where there is no value
        interval = np.where(near, usual, interval)
        node = node_of_[series]
        by_node = np.full(len(self._nodes.values), usual)
        by_node[node] = interval[device_of[series]]
        node, ts = _list_distinct(node, ts)
        return ScrapeTimes(self._nodes.values, node, ts, by_node, interval)


def _list_distinct(node: Ints, ts: Timestamps) -> tuple[Ints, Timestamps]:
    """Return the distinct pairs of node and time, in their order."""
    if not len(ts):
        return node, ts
    began, micros = ts.min(), ts.astype(np.int64)
    span = int(micros.max() - began.astype(np.int64)) + 1
    keys = np.unique(node * span + (micros - began.astype(np.int64)))
    return keys // span, began + (keys % span).astype("timedelta64[us]")


class Names:
    """A number per distinct name, in the order they came."""

    def __init__(self) -> None:
        self._codes: dict[str, int] = {}
        self.values: list[str] = []

    def code(self, name: str | None) -> int:
        """Return the number of a name; None is the empty name."""
        names_found = self._codes.setdefault(name or "", len(self.values))
        if names_found == len(self.values):
            self.values.append(name or "")
        return names_found


def list_metric_names(client: PrometheusClient, window: Window) -> list[str]:
    """Return every metric name of a window; if the server refuses, the names that Fallow knows."""
    parameters = {"start": window.start.timestamp(), "end": window.end.timestamp()}
    try:
        return decode_names(client.get("label/__name__/values", parameters))
    except AuthError:
        raise
    except SourceError:
        return list(read_metrics())


def _compute_median_spacing(series: Ints, device_of: Ints, ts: Timestamps, devices: int) -> Floats:
    """Return the median seconds between two samples by device; NaN where there are not two."""
    out = np.full(devices, np.nan)
    if len(ts) < 2:  # noqa: PLR2004
        return out
    spacing = np.diff(ts).astype(np.int64)
    same = series[1:] == series[:-1]
    device, spacing = device_of[series[1:]][same], spacing[same]
    if not len(device):
        return out
    if (spacing == spacing[0]).all():
        out[device] = np.round(spacing[0] / 1e6)
        return np.where(out <= 0, np.nan, out)
    order = np.lexsort((spacing, device))
    device, spacing = device[order], spacing[order]
    first = np.flatnonzero(np.r_[True, device[1:] != device[:-1]])
    count = np.diff(np.r_[first, len(device)])
    out[device[first]] = np.round(spacing[first + (count - 1) // 2] / 1e6)
    return np.where(out <= 0, np.nan, out)


def _cut_time(chunk: TelemetryChunk) -> Timestamps:
    """Return the ends of slices of time of at most about `SLICE` values."""
    pieces = -(-sum(len(h) for h in chunk.metric_samples) // SLICE)
    start, end = (
        np.datetime64(m.replace(tzinfo=None), "us").astype(np.int64)
        for m in (chunk.window.start, chunk.window.end)
    )
    return np.linspace(start, end, pieces + 1).astype(np.int64).view("datetime64[us]")
