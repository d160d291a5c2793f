"""What training loops say of their pace and memory, to `step_sample`: one row per pod and 5 min."""

import csv
from collections.abc import Sequence
from datetime import timedelta
from functools import cache
from importlib.resources import files

from collectors.prometheus.client import PrometheusClient
from collectors.prometheus.decode import Floats
from collectors.prometheus.grid import asked, by_pod, holders, lines, replicas
from collectors.prometheus.raw import selector
from collectors.prometheus.usage import GRID, RANGE, merge, rows
from fallow.service_levels import StepMetric
from fallow.tables import Batch
from fallow.window import Window

WORK = ("work_per_s", "job_work_per_s")
SUMMED = ("work_per_s", "allocated_bytes", "reserved_bytes")
"""Ranks and devices of a pod have a part each; of the rest each tells the whole."""
Pod = tuple[str, str]


@cache
def known() -> tuple[StepMetric, ...]:
    """Return the metrics of `step_metrics.csv`."""
    text = files("collectors.prometheus").joinpath("step_metrics.csv").read_text("utf-8")
    names = StepMetric.model_fields
    return tuple(
        StepMetric.model_validate({k: v for k, v in row.items() if k in names})
        for row in csv.DictReader(text.splitlines())
    )


class Steps:
    """Asks for what training loops say of themselves."""

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
        self._metrics = {(m.name, m.column): m for m in (*known(), *own)}

    def wanted(self, present: Sequence[str]) -> list[StepMetric]:
        """Return the metrics that the server has."""
        there = set(present)
        return [m for m in self._metrics.values() if there.issuperset(_needs(m))]

    def batch(
        self, wanted: Sequence[StepMetric], held_by: Sequence[str], window: Window
    ) -> Batch | None:
        """Return the `step_sample` rows of a window whose ends lie on the grid."""
        whose = holders(held_by, self._matchers, RANGE)
        found: dict[str, dict[Pod, Floats]] = {}
        work: dict[Pod, str] = {}
        for metric in wanted:
            question = f"({self._expression(metric)}) and on (namespace, pod) ({whose})"
            parts = asked(self._client, question, window, GRID)
            for words, line in lines(parts, window, GRID):
                pod = (words.get("namespace", ""), words.get("pod", ""))
                if metric.column in WORK and work.setdefault(pod, metric.name) != metric.name:
                    continue  # two throughputs of one pod never mix
                merge(found.setdefault(metric.column, {}), words, line)
        return rows("step_sample", found, window, GRID, cluster=self._cluster, words={"work": work})

    def _expression(self, metric: StepMetric) -> str:
        def of(suffix: str, function: str) -> str:
            series = selector([f"{metric.name}{suffix}"], self._matchers)
            return f"max without ({replicas()}) ({function}({series}[{RANGE}]))"

        fold = "sum" if metric.column in SUMMED else "max"
        times = "" if metric.scale == 1 else f" * {metric.scale!r}"
        by = f"by ({metric.namespace_label}, {metric.pod_label})"
        if metric.form == "histogram":
            # Steps per second of stepping: told for all steps, or for those of every n-th alike.
            spent = f"sum {by} ({of('_sum', 'rate')}){times}"
            made = f"sum {by} ({of('_count', 'rate')}) / ({spent})"
        elif metric.form == "seconds":
            made = f"1 / (max {by} ({of('', 'avg_over_time')}){times})"
        else:
            function = "rate" if metric.form == "counter" else "avg_over_time"
            made = f"{fold} {by} ({of('', function)}){times}"
        return by_pod(f"({made})", metric.namespace_label, metric.pod_label)


def _needs(metric: StepMetric) -> tuple[str, ...]:
    if metric.form == "histogram":
        return f"{metric.name}_sum", f"{metric.name}_count"
    return (metric.name,)
