"""Read the speed and memory of training loops: `step_sample`, one row per pod and 5 minutes."""

from collections.abc import Sequence
from datetime import timedelta
from functools import cache

from collectors.prometheus.client import PrometheusClient
from collectors.prometheus.decode import Floats
from collectors.prometheus.grid import (
    build_holders_query,
    build_pod_query,
    decode_series_values,
    list_replica_labels,
    query_grid,
)
from collectors.prometheus.raw import build_selector
from collectors.prometheus.tables import load_table
from collectors.prometheus.usage import GRID, RANGE, Key, build_rows, merge
from fallow.settings.service_levels import StepMetric
from fallow.tables import Batch
from fallow.window import Window

WORK = ("work_per_s", "job_work_per_s")
SUMMED = ("work_per_s", "allocated_bytes", "reserved_bytes")
"""Summed over the ranks and devices of a pod; every other metric is the same on each of them."""


@cache
def read_step_metrics() -> tuple[StepMetric, ...]:
    """Return the metrics of `step_metrics.csv`."""
    names = StepMetric.model_fields
    return tuple(
        StepMetric.model_validate({k: v for k, v in row.items() if k in names})
        for row in load_table("step_metrics")
    )


class Steps:
    """Queries the metrics of training loops."""

    every: timedelta = GRID

    def __init__(
        self,
        client: PrometheusClient,
        *,
        cluster: str,
        matchers: str = "",
        own: Sequence[StepMetric] = (),
    ) -> None:
        self._client, self._cluster, self._matchers = client, cluster, matchers
        self._metrics = {(m.name, m.column): m for m in (*read_step_metrics(), *own)}

    def wanted(self, present: Sequence[str]) -> list[StepMetric]:
        """Return the metrics that the server has."""
        metrics_present = set(present)
        return [m for m in self._metrics.values() if metrics_present.issuperset(_needs(m))]

    def batch(
        self, wanted: Sequence[StepMetric], held_by: Sequence[str], window: Window
    ) -> Batch | None:
        """Return the `step_sample` rows of a window whose ends lie on the grid."""
        holder_query = build_holders_query(held_by, self._matchers, RANGE)
        columns_found: dict[str, dict[Key, Floats]] = {}
        work: dict[Key, str] = {}
        for metric in wanted:
            question = f"({self._expression(metric)}) and on (namespace, pod) ({holder_query})"
            parts = query_grid(self._client, question, window, GRID)
            for label_set, values_seen in decode_series_values(parts, window, GRID):
                pod: Key = (label_set.get("namespace", ""), label_set.get("pod", ""))
                if metric.column in WORK and work.setdefault(pod, metric.name) != metric.name:
                    continue  # two throughput metrics of one pod are never mixed
                merge(columns_found.setdefault(metric.column, {}), label_set, values_seen)
        return build_rows(
            "step_sample", columns_found, window, GRID, cluster=self._cluster, texts={"work": work}
        )

    def _expression(self, metric: StepMetric) -> str:
        def of(suffix: str, function: str) -> str:
            series = build_selector([f"{metric.name}{suffix}"], self._matchers)
            return f"max without ({list_replica_labels()}) ({function}({series}[{RANGE}]))"

        fold = "sum" if metric.column in SUMMED else "max"
        times = "" if metric.scale == 1 else f" * {metric.scale!r}"
        by = f"by ({metric.namespace_label}, {metric.pod_label})"
        if metric.form == "histogram":
            # Steps per second of step time: the ratio is the same if only every n-th step is
            # counted.
            sum_rate = f"sum {by} ({of('_sum', 'rate')}){times}"
            expression = f"sum {by} ({of('_count', 'rate')}) / ({sum_rate})"
        elif metric.form == "seconds":
            expression = f"1 / (max {by} ({of('', 'avg_over_time')}){times})"
        else:
            function = "rate" if metric.form == "counter" else "avg_over_time"
            expression = f"{fold} {by} ({of('', function)}){times}"
        return build_pod_query(f"({expression})", metric.namespace_label, metric.pod_label)


def _needs(metric: StepMetric) -> tuple[str, ...]:
    if metric.form == "histogram":
        return f"{metric.name}_sum", f"{metric.name}_count"
    return (metric.name,)
