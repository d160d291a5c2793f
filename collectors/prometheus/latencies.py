"""Latency histograms of servers that hold devices, to `latency_sample`: one row per pod and hour.

    increase(<name>_bucket[1h]) by pod and bound ─► monotone ─► counts per bucket

An hour, because a histogram has some twenty buckets and nobody judges a service level by minutes.
A bound's increase may be a little below that of a lower one (each series is extrapolated by
itself): the running maximum mends that, as `histogram_quantile` does. Of servers that count only
requests and their time, the mean is kept, without bounds.
"""

import csv
from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import cache
from importlib.resources import files

import numpy as np
import pyarrow as pa

from collectors.prometheus.client import PrometheusClient
from collectors.prometheus.decode import Floats
from collectors.prometheus.grid import asked, by_pod, holders, lines, moments, replicas
from collectors.prometheus.raw import selector
from fallow.service_levels import LatencyMetric
from fallow.tables import Batch
from fallow.window import Window

GRID = timedelta(hours=1)
RANGE = "1h"
INFINITE = float("inf")
Pod = tuple[str, str]


@cache
def known() -> tuple[LatencyMetric, ...]:
    """Return the latencies of `service_metrics.csv`."""
    text = files("collectors.prometheus").joinpath("service_metrics.csv").read_text("utf-8")
    rows = csv.DictReader(text.splitlines())
    names = LatencyMetric.model_fields
    return tuple(
        LatencyMetric.model_validate({k: v for k, v in row.items() if k in names}) for row in rows
    )


class Latencies:
    """Asks for what servers say of their latencies."""

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
        self._metrics = {m.name: m for m in (*known(), *own)}

    def wanted(self, present: Sequence[str]) -> list[LatencyMetric]:
        """Return the latencies that the server has."""
        there = set(present)
        return [m for m in self._metrics.values() if there.issuperset(_needs(m))]

    def batch(
        self, wanted: Sequence[LatencyMetric], held_by: Sequence[str], window: Window
    ) -> Batch | None:
        """Return the `latency_sample` rows of a window whose ends lie on the grid."""
        whose = holders(held_by, self._matchers, RANGE)
        parts = [b for m in wanted if (b := self._one(m, whose, window)) is not None]
        if not parts:
            return None
        return Batch("latency_sample", pa.concat_tables([b.rows for b in parts]).combine_chunks())

    def _one(self, metric: LatencyMetric, whose: str, window: Window) -> Batch | None:
        total_name, count_name = _needs(metric)[:2]
        total = self._lines(metric, total_name, whose, window)
        if metric.form == "mean":
            seen = {
                pod: by[""][None, :]
                for pod, by in self._lines(metric, count_name, whose, window).items()
            }
            bounds: dict[Pod, list[float]] = {pod: [] for pod in seen}
        else:
            buckets = self._lines(metric, f"{metric.name}_bucket", whose, window, "le")
            bounds = {pod: sorted(map(float, by)) for pod, by in buckets.items()}
            seen = {pod: _counts(by) for pod, by in buckets.items()}
        return self._rows(metric, window, seen, bounds, total)

    def _lines(
        self, metric: LatencyMetric, name: str, whose: str, window: Window, bound: str = ""
    ) -> dict[Pod, dict[str, Floats]]:
        matchers = ", ".join(p for p in (self._matchers, metric.matchers) if p)
        by = ", ".join(p for p in (metric.namespace_label, metric.pod_label, bound) if p)
        grew = f"increase({selector([name], matchers)}[{RANGE}])"
        summed = f"sum by ({by}) (max without ({replicas()}) ({grew}))"
        named = by_pod(summed, metric.namespace_label, metric.pod_label)
        question = f"({named}) and on (namespace, pod) ({whose})"
        found: dict[Pod, dict[str, Floats]] = {}
        for words, line in lines(asked(self._client, question, window, GRID), window, GRID):
            pod = (words.get("namespace", ""), words.get("pod", ""))
            if pod[1]:
                found.setdefault(pod, {})[words.get(bound, "") if bound else ""] = line
        return found

    def _rows(
        self,
        metric: LatencyMetric,
        window: Window,
        seen: Mapping[Pod, Floats],
        bounds: Mapping[Pod, list[float]],
        total: Mapping[Pod, Mapping[str, Floats]],
    ) -> Batch | None:
        at = moments(window, GRID)
        columns: dict[str, list[object]] = {
            name: [] for name in ("ts", "namespace", "pod", "count", "total_s", "bounds", "counts")
        }
        for pod, counts in seen.items():
            whole = counts.sum(axis=0)
            spent = total.get(pod, {}).get("", np.full(len(at), np.nan)) * metric.scale
            finite = [b * metric.scale for b in bounds[pod] if b != INFINITE]
            for place in np.flatnonzero(np.isfinite(whole)).tolist():
                columns["ts"].append(at[place])
                columns["namespace"].append(pod[0])
                columns["pod"].append(pod[1])
                columns["count"].append(whole[place])
                columns["total_s"].append(spent[place] if np.isfinite(spent[place]) else None)
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


def _counts(by: Mapping[str, Floats]) -> Floats:
    """Return [bucket, hour] counts of a pod's cumulative increases, NaN where nothing is known."""
    ordered = sorted(by, key=float)
    if float(ordered[-1]) != INFINITE:
        return np.full((1, len(by[ordered[0]])), np.nan)
    stacked = np.array([by[bound] for bound in ordered])
    unknown = np.isnan(stacked[-1])
    rising = np.maximum.accumulate(np.nan_to_num(stacked, nan=0.0), axis=0)
    # A bound above +Inf's own increase is extrapolation alone: the whole is what +Inf says.
    rising = np.minimum(rising, np.nan_to_num(stacked[-1], nan=0.0))
    counts: Floats = np.diff(rising, axis=0, prepend=0.0)
    counts[:, unknown] = np.nan
    return counts


def _needs(metric: LatencyMetric) -> tuple[str, ...]:
    """Return the series that a latency is read from: its sum, its count or buckets."""
    if metric.form == "histogram":
        return f"{metric.name}_sum", f"{metric.name}_bucket"
    if metric.count:
        return metric.name, metric.count
    return f"{metric.name}_sum", f"{metric.name}_count"
