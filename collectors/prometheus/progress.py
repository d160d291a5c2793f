"""How far jobs are by their own metrics, to `progress_sample`: a row per pod, metric and minute.

The metrics are those of `progress_metrics.csv`, of `prometheus.progress_metrics`, and those that
pods name in the annotation `fallow.dev/progress-metric`, where kube-state-metrics shows it. A
minute, because a job that hangs is to be seen within ten of them. The value is the last one that
the server scraped: the sum over the pod's series, so that the progress of any of them is seen.
"""

import csv
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from functools import cache
from importlib.resources import files

import numpy as np
import pyarrow as pa

from collectors.prometheus.client import PrometheusClient
from collectors.prometheus.decode import Floats, vector
from collectors.prometheus.grid import asked, holders, lines, replicas
from collectors.prometheus.raw import selector
from collectors.prometheus.usage import merge, rows
from fallow.service_levels import METRIC_NAME
from fallow.tables import Batch
from fallow.window import Window

GRID = timedelta(minutes=1)
RANGE = "90s"
"""A scrape of a minute with half of one of jitter; what is older is a silence, not a value."""
ANNOTATIONS = "kube_pod_annotations"
LABEL = "annotation_fallow_dev_progress_metric"
"""The annotation as kube-state-metrics shows it."""


@cache
def known() -> tuple[str, ...]:
    """Return the names of `progress_metrics.csv`."""
    text = files("collectors.prometheus").joinpath("progress_metrics.csv").read_text("utf-8")
    return tuple(row["name"] for row in csv.DictReader(text.splitlines()))


class Progress:
    """Queries what jobs say of their progress."""

    every: timedelta = GRID

    def __init__(
        self,
        client: PrometheusClient,
        *,
        cluster: str,
        matchers: str = "",
        own: Sequence[str] = (),
    ) -> None:
        self._client, self._cluster, self._matchers = client, cluster, matchers
        self._names = (*known(), *own)
        self._present: frozenset[str] = frozenset()

    def wanted(self, present: Sequence[str]) -> list[str]:
        """Return the metrics that the server has; kube-state-metrics' annotations name others."""
        self._present = frozenset(present)
        return [name for name in (*self._names, ANNOTATIONS) if name in self._present]

    def batch(self, wanted: Sequence[str], held_by: Sequence[str], window: Window) -> Batch | None:
        """Return the `progress_sample` rows of a window whose ends lie on the grid."""
        names = [name for name in wanted if name != ANNOTATIONS]
        if ANNOTATIONS in wanted:
            names += self._annotated(window)
        whose = holders(held_by, self._matchers, RANGE)
        made = [self._one(name, whose, window) for name in dict.fromkeys(names)]
        parts = [batch.rows for batch in made if batch is not None]
        if not parts:
            return None
        return Batch("progress_sample", pa.concat_tables(parts).combine_chunks())

    def _one(self, name: str, whose: str, window: Window) -> Batch | None:
        last = f"last_over_time({selector([name], self._matchers)}[{RANGE}])"
        one = f"sum by (namespace, pod) (max without ({replicas()}) ({last}))"
        question = f"({one}) and on (namespace, pod) ({whose})"
        column: dict[tuple[str, str], Floats] = {}
        for words, line in lines(asked(self._client, question, window, GRID), window, GRID):
            merge(column, words, line)
        said = dict.fromkeys(column, name)
        found = rows(
            "progress_sample",
            {"value": column},
            window,
            GRID,
            cluster=self._cluster,
            words={"metric": said},
        )
        return found and _at_the_end(found)

    def _annotated(self, window: Window) -> list[str]:
        """Return the metrics that annotations name and the server has."""
        what = ", ".join(p for p in (self._matchers, f'{LABEL}!=""') if p)
        span = f"{max(round(window.seconds), 600)}s"
        shown = f"last_over_time({selector([ANNOTATIONS], what)}[{span}])"
        found = vector(self._client.query(f"count by ({LABEL}) ({shown})", window.end))
        return sorted(_names(words for words, _ in found) & self._present)


def _names(words: Iterable[Mapping[str, str]]) -> set[str]:
    named = {found.get(LABEL, "") for found in words}
    return {name for name in named if re.match(METRIC_NAME, name)}


def _at_the_end(batch: Batch) -> Batch:
    """Date rows by when their value was the last one: the end of the minute, not its start."""
    place = batch.rows.schema.get_field_index("ts")
    ts = batch.rows["ts"].to_numpy() + np.timedelta64(GRID)
    shifted = pa.array(ts.astype("datetime64[us]"), batch.rows.schema.field("ts").type)
    return Batch(batch.table, batch.rows.set_column(place, "ts", shifted))
