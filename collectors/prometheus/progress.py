"""Read the progress of jobs from their own metrics: `progress_sample`, per pod, metric and minute.

The metrics are those of `progress_metrics.csv`, of `prometheus.progress_metrics`, and those that
pods name in the annotation `fallow.dev/progress-metric`, if kube-state-metrics exports it. One
minute, because a hang must be detected within ten minutes. The value is the last one that the
server scraped, summed over the pod's series, so that progress of any of them is visible. Series of
several hosts contradict each other (with `honor_labels` a target may name any pod): while there are
any, the pod's progress is unknown, and it is listed.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta

import numpy as np
import pyarrow as pa

from collectors.progress import read_progress_metrics
from collectors.prometheus.client import PrometheusClient
from collectors.prometheus.decode import Floats, decode_vector
from collectors.prometheus.grid import (
    build_holders_query,
    decode_series_values,
    list_replica_labels,
    query_grid,
)
from collectors.prometheus.raw import build_selector
from collectors.prometheus.usage import Key, build_rows, merge
from fallow.rejections import Rejection
from fallow.settings.service_levels import METRIC_NAME
from fallow.tables import Batch
from fallow.window import Window

GRID = timedelta(minutes=1)
RANGE = "90s"
"""A scrape interval of one minute plus half of one for jitter; an older value is a gap."""
REPLACED = 2
"""Minutes in which `RANGE` has values of two pods of one name, of which one replaces the other."""
ANNOTATIONS = "kube_pod_annotations"
LABEL = "annotation_fallow_dev_progress_metric"
"""The annotation as kube-state-metrics exports it."""


class ProgressQueries:
    """Queries the progress of jobs."""

    every: timedelta = GRID

    def __init__(
        self, client: PrometheusClient, *, cluster: str, matchers: str = "", own: Sequence[str] = ()
    ) -> None:
        self._client, self._cluster, self._matchers = client, cluster, matchers
        self._names = (*read_progress_metrics(), *own)
        self._present: frozenset[str] = frozenset()
        self._contradicted: set[tuple[str, Key]] = set()

    def wanted(self, present: Sequence[str]) -> list[str]:
        """Return the metrics that the server has; kube-state-metrics' annotations name others."""
        self._present = frozenset(present)
        return [name for name in (*self._names, ANNOTATIONS) if name in self._present]

    def batch(self, wanted: Sequence[str], held_by: Sequence[str], window: Window) -> Batch | None:
        """Return the `progress_sample` rows of a window whose ends lie on the grid."""
        names = [name for name in wanted if name != ANNOTATIONS]
        if ANNOTATIONS in wanted:
            names += self._annotated(window)
        holder_query = build_holders_query(held_by, self._matchers, RANGE)
        batches = [self._read_metric(name, holder_query, window) for name in dict.fromkeys(names)]
        parts = [batch.rows for batch in batches if batch is not None]
        if not parts:
            return None
        return Batch("progress_sample", pa.concat_tables(parts).combine_chunks())

    def take_rejections(self) -> list[Rejection]:
        """Return the pods whose progress several hosts gave since the last call."""
        contradicted, self._contradicted = self._contradicted, set()
        reason = "targets of several hosts name it: its progress is unknown meanwhile"
        return [
            Rejection("progress_sample", namespace, pod, metric, reason)
            for metric, (namespace, pod) in contradicted
        ]

    def _read_metric(self, name: str, holder_query: str, window: Window) -> Batch | None:
        last = f"last_over_time({build_selector([name], self._matchers)}[{RANGE}])"
        per_host = f'label_replace({last}, "host", "$1", "instance", "(.+):[0-9]+")'
        rank_expression = (
            f"sum by (namespace, pod, host) (max without ({list_replica_labels()}) ({per_host}))"
        )
        question = f"({rank_expression}) and on (namespace, pod) ({holder_query})"
        column: dict[Key, Floats] = {}
        hosts: dict[Key, Floats] = {}
        for label_set, values_seen in decode_series_values(
            query_grid(self._client, question, window, GRID), window, GRID
        ):
            merge(column, label_set, values_seen)
            key = (label_set.get("namespace", ""), label_set.get("pod", ""))
            hosts[key] = hosts.get(key, 0.0) + ~np.isnan(values_seen)
        for pod, counts in hosts.items():
            if pod in column and (counts > 1).any():
                column[pod] = np.where(counts > 1, np.nan, column[pod])
                # A pod made anew has two addresses as long as a value of the first one is read.
                if (counts > 1).sum() > REPLACED:
                    self._contradicted.add((name, pod))
        metric_names = dict.fromkeys(column, name)
        batch_rows = build_rows(
            "progress_sample",
            {"value": column},
            window,
            GRID,
            cluster=self._cluster,
            texts={"metric": metric_names},
        )
        return batch_rows and _build_last_rows(batch_rows)

    def _annotated(self, window: Window) -> list[str]:
        """Return the metrics that annotations name and the server has."""
        matchers = ", ".join(p for p in (self._matchers, f'{LABEL}!=""') if p)
        span = f"{max(round(window.seconds), 600)}s"
        annotations_expression = (
            f"last_over_time({build_selector([ANNOTATIONS], matchers)}[{span}])"
        )
        annotation_rows = decode_vector(
            self._client.query(f"count by ({LABEL}) ({annotations_expression})", window.end)
        )
        return sorted(_list_names(label_set for label_set, _ in annotation_rows) & self._present)


def _list_names(label_set: Iterable[Mapping[str, str]]) -> set[str]:
    metric_names = {labels_found.get(LABEL, "") for labels_found in label_set}
    return {name for name in metric_names if re.match(METRIC_NAME, name)}


def _build_last_rows(batch: Batch) -> Batch:
    """Date rows by the time at which their value was the last one: the end of the minute."""
    place = batch.rows.schema.get_field_index("ts")
    ts = batch.rows["ts"].to_numpy() + np.timedelta64(GRID)
    shifted = pa.array(ts.astype("datetime64[us]"), batch.rows.schema.field("ts").type)
    return Batch(batch.table, batch.rows.set_column(place, batch.rows.schema.field(place), shifted))
