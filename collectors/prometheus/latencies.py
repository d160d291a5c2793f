"""Read latency histograms of servers that hold devices: `latency_sample`, a row per pod and hour.

    increase(<name>_bucket[1h]) by pod and bound ─► monotone ─► counts per bucket

The rows are hourly, because a histogram has about twenty buckets and service levels are not judged
by the minute. A bound's increase may be a little below that of a lower bound (each series is
extrapolated separately): the running maximum corrects that, as `histogram_quantile` does. If a
server counts only requests and their total time, the mean is kept, without bounds.
"""

import math
from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import cache

import numpy as np
import pyarrow as pa

from collectors.prometheus.client import PrometheusClient
from collectors.prometheus.decode import Floats
from collectors.prometheus.grid import (
    build_holders_query,
    build_pod_query,
    decode_series_values,
    list_grid_times,
    list_replica_labels,
    query_grid,
)
from collectors.prometheus.raw import build_selector
from collectors.prometheus.tables import load_table
from fallow.settings.service_levels import LatencyMetric
from fallow.tables import Batch
from fallow.window import Window

GRID = timedelta(hours=1)
RANGE = "1h"
INFINITE = float("inf")
Pod = tuple[str, str]


@cache
def read_latency_metrics() -> tuple[LatencyMetric, ...]:
    """Return the latencies of `service_metrics.csv`."""
    names = LatencyMetric.model_fields
    return tuple(
        LatencyMetric.model_validate({k: v for k, v in row.items() if k in names})
        for row in load_table("service_metrics")
    )


class Latencies:
    """Queries the latencies that servers export."""

    every = GRID

    def __init__(
        self,
        client: PrometheusClient,
        *,
        cluster: str,
        matchers: str = "",
        own: Sequence[LatencyMetric] = (),
    ) -> None:
        self._client, self._cluster, self._matchers = client, cluster, matchers
        self._metrics = {m.name: m for m in (*read_latency_metrics(), *own)}

    def wanted(self, present: Sequence[str]) -> list[LatencyMetric]:
        """Return the latencies that the server has."""
        metrics_present = set(present)
        return [m for m in self._metrics.values() if metrics_present.issuperset(_needs(m))]

    def batch(
        self, wanted: Sequence[LatencyMetric], held_by: Sequence[str], window: Window
    ) -> Batch | None:
        """Return the `latency_sample` rows of a window whose ends lie on the grid."""
        holder_query = build_holders_query(held_by, self._matchers, RANGE)
        parts = [b for m in wanted if (b := self._read_metric(m, holder_query, window)) is not None]
        if not parts:
            return None
        return Batch("latency_sample", pa.concat_tables([b.rows for b in parts]).combine_chunks())

    def _read_metric(
        self, metric: LatencyMetric, holder_query: str, window: Window
    ) -> Batch | None:
        total_name, count_name = _needs(metric)[:2]
        total = self._lines(metric, total_name, holder_query, window)
        if metric.form == "mean":
            counts_by_pod = {
                pod: by[""][None, :]
                for pod, by in self._lines(metric, count_name, holder_query, window).items()
            }
            bounds: dict[Pod, list[float]] = {pod: [] for pod in counts_by_pod}
        else:
            buckets = self._lines(metric, f"{metric.name}_bucket", holder_query, window, "le")
            bounds = {pod: sorted(map(float, by)) for pod, by in buckets.items()}
            counts_by_pod = {pod: _decode_counts(by) for pod, by in buckets.items()}
        return self._rows(metric, window, counts_by_pod, bounds, total)

    def _lines(
        self, metric: LatencyMetric, name: str, holder_query: str, window: Window, bound: str = ""
    ) -> dict[Pod, dict[str, Floats]]:
        matchers = ", ".join(p for p in (self._matchers, metric.matchers) if p)
        by = ", ".join(p for p in (metric.namespace_label, metric.pod_label, bound) if p)
        increases = f"increase({build_selector([name], matchers)}[{RANGE}])"
        summed = f"sum by ({by}) (max without ({list_replica_labels()}) ({increases}))"
        pod_expression = build_pod_query(summed, metric.namespace_label, metric.pod_label)
        question = f"({pod_expression}) and on (namespace, pod) ({holder_query})"
        buckets: dict[Pod, dict[str, Floats]] = {}
        for label_set, values_seen in decode_series_values(
            query_grid(self._client, question, window, GRID), window, GRID
        ):
            pod = (label_set.get("namespace", ""), label_set.get("pod", ""))
            le = label_set.get(bound, "") if bound else ""
            if pod[1] and (not bound or _is_bound(le)):
                buckets.setdefault(pod, {})[le] = values_seen
        return buckets

    def _rows(
        self,
        metric: LatencyMetric,
        window: Window,
        counts_by_pod: Mapping[Pod, Floats],
        bounds: Mapping[Pod, list[float]],
        total: Mapping[Pod, Mapping[str, Floats]],
    ) -> Batch | None:
        at = list_grid_times(window, GRID)
        columns: dict[str, list[object]] = {
            name: [] for name in ("ts", "namespace", "pod", "count", "total_s", "bounds", "counts")
        }
        for pod, counts in counts_by_pod.items():
            whole = counts.sum(axis=0)
            sums = total.get(pod, {}).get("", np.full(len(at), np.nan)) * metric.scale
            finite = [b * metric.scale for b in bounds[pod] if b != INFINITE]
            for place in np.flatnonzero(np.isfinite(whole)).tolist():
                columns["ts"].append(at[place])
                columns["namespace"].append(pod[0])
                columns["pod"].append(pod[1])
                columns["count"].append(whole[place])
                columns["total_s"].append(sums[place] if np.isfinite(sums[place]) else None)
                columns["bounds"].append(finite)
                columns["counts"].append(counts[:, place].tolist() if finite else [])
        if not columns["ts"]:
            return None
        count = len(columns["ts"])
        floats = pa.list_(pa.float64())
        return Batch.of(
            "latency_sample",
            {
                **columns,
                "ts": np.array(columns["ts"], "datetime64[us]"),
                "bounds": pa.array(columns["bounds"], floats),
                "counts": pa.array(columns["counts"], floats),
                "cluster": [self._cluster] * count,
                "metric": [metric.measure] * count,
                "source": [metric.name] * count,
                "interval_s": np.full(count, GRID.total_seconds()),
            },
        )


def _is_bound(text: str) -> bool:
    """Return whether a bucket's label is a number: it is whatever its pod says."""
    try:
        return not math.isnan(float(text))
    except ValueError:
        return False


def _decode_counts(by: Mapping[str, Floats]) -> Floats:
    """Return [bucket, hour] counts of a pod's cumulative increases, NaN where not known."""
    ordered = sorted(by, key=float)
    if float(ordered[-1]) != INFINITE:
        return np.full((1, len(by[ordered[0]])), np.nan)
    stacked = np.array([by[bound] for bound in ordered])
    unknown = np.isnan(stacked[-1])
    rising = np.maximum.accumulate(np.nan_to_num(stacked, nan=0.0), axis=0)
    # A bound above +Inf's own increase comes from extrapolation: the total is that of +Inf.
    rising = np.minimum(rising, np.nan_to_num(stacked[-1], nan=0.0))
    counts: Floats = np.diff(rising, axis=0, prepend=0.0)
    counts[:, unknown] = np.nan
    return counts


def _needs(metric: LatencyMetric) -> tuple[str, ...]:
    """Return the series from which a latency is read: its sum, its count or buckets."""
    if metric.form == "histogram":
        return f"{metric.name}_sum", f"{metric.name}_bucket"
    if metric.count:
        return metric.name, metric.count
    return f"{metric.name}_sum", f"{metric.name}_count"
