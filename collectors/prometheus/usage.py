"""Read what pods that hold devices do on the host: cAdvisor, request counters -> `pod_sample`.

Over whole five minutes that end on the clock's grid. Only pods that the device telemetry names are
queried, joined on the server, because a cluster has many more. Series that two replicas of one
Prometheus scraped count once: grouped by the labels that name a container, an interface or a disk,
else without the labels that distinguish replicas.
"""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import cache
from string import Template

import numpy as np

from collectors.prometheus.client import PrometheusClient
from collectors.prometheus.decode import Floats
from collectors.prometheus.grid import grid_times, holders, query_grid, replicas, series_values
from collectors.prometheus.tables import available, table
from fallow.tables import Batch
from fallow.window import Window

GRID = timedelta(minutes=5)
RANGE = "5m"


@cache
def sidecars() -> str:
    """Return a matcher of the containers whose CPU is not the pod's own work (`sidecars.csv`)."""
    return "|".join(row["container"] for row in table("sidecars"))


class Usage:
    """Queries the host usage of pods."""

    every = GRID

    def __init__(self, client: PrometheusClient, *, cluster: str, matchers: str = "") -> None:
        self._client = client
        self._cluster = cluster
        self._matchers = matchers

    def wanted(self, present: Sequence[str]) -> list[dict[str, str]]:
        """Return the queries whose metrics the server has."""
        return available("queries", present)

    def batch(
        self, wanted: Sequence[Mapping[str, str]], held_by: Sequence[str], window: Window
    ) -> Batch | None:
        """Return the `pod_sample` rows of a window whose ends lie on the grid."""
        holder_query = holders(held_by, self._matchers, RANGE)
        columns_found: dict[str, dict[tuple[str, str], Floats]] = {}
        for query in wanted:
            expression = Template(query["expression"]).substitute(
                selector=self._matchers, range=RANGE, sidecars=sidecars(), replicas=replicas()
            )
            parts = query_grid(
                self._client,
                f"({expression}) and on (namespace, pod) ({holder_query})",
                window,
                GRID,
            )
            column = columns_found.setdefault(query["column"], {})
            for label_set, values_seen in series_values(parts, window, GRID):
                merge(column, label_set, values_seen)
        return rows("pod_sample", columns_found, window, GRID, cluster=self._cluster)


def merge(
    column: dict[tuple[str, str], Floats], label_set: Mapping[str, str], line: Floats
) -> None:
    """Add a series to its pod's row; series without a pod are unattributed and left out."""
    pod = (label_set.get("namespace", ""), label_set.get("pod", ""))
    if pod[1]:
        value_known = column.get(pod)
        column[pod] = line if value_known is None else np.where(np.isnan(line), value_known, line)


def rows(
    table: str,
    columns_found: Mapping[str, Mapping[tuple[str, str], Floats]],
    window: Window,
    step: timedelta,
    *,
    cluster: str,
    texts: Mapping[str, Mapping[tuple[str, str], str]] | None = None,
) -> Batch | None:
    """Return a row per pod and stretch with any value; `texts` are by pod only."""
    at = grid_times(window, step)
    pods = list(dict.fromkeys(pod for column in columns_found.values() for pod in column))
    if not pods:
        return None
    missing = np.full(len(at), np.nan)
    columns = {
        name: np.array([column.get(pod, missing) for pod in pods]).ravel()
        for name, column in columns_found.items()
    }
    finite = {name: np.where(np.isfinite(c), c, np.nan) for name, c in columns.items()}
    keep = np.flatnonzero(~np.all([np.isnan(c) for c in finite.values()], axis=0))
    if not len(keep):
        return None
    holder_query = [pods[place] for place in (keep // len(at)).tolist()]
    data: dict[str, object] = {
        "cluster": [cluster] * len(keep),
        "ts": at[keep % len(at)],
        "namespace": [space for space, _ in holder_query],
        "pod": [pod for _, pod in holder_query],
        "interval_s": np.full(len(keep), step.total_seconds()),
        **{name: values[keep] for name, values in finite.items()},  # NaN becomes null
    }
    for name, value_by_pod in (texts or {}).items():
        data[name] = [value_by_pod.get(pod) for pod in holder_query]
    return Batch.of(table, data)
