"""Read what pods that hold devices, and their containers, do on the host.

    cAdvisor, request counters ─► pod_sample        by pod
    cAdvisor                   ─► container_sample  by container; memory is the stretch's maximum

Over whole five minutes that end on the clock's grid. Only pods that the device telemetry names are
queried, joined on the server, because a cluster has many more. Series that two replicas of one
Prometheus scraped count once: grouped by the labels that name a container, an interface or a disk,
else without the labels that distinguish replicas.
"""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import cache
from string import Template

import msgspec
import numpy as np

from collectors.prometheus.client import PrometheusClient
from collectors.prometheus.decode import Floats
from collectors.prometheus.grid import (
    build_holders_query,
    decode_series_values,
    list_grid_times,
    list_replica_labels,
    query_grid,
)
from collectors.prometheus.tables import list_available, load_table
from fallow.tables import Batch
from fallow.window import Window

GRID = timedelta(minutes=5)
RANGE = "5m"
_MOST = 2.0**63
"""What a column of integers holds; no rate, size or count is larger, and none is below 0."""
Key = tuple[str, ...]
"""Values of the labels that identify a row: namespace, pod, and for some tables the container."""


class UsageTable(msgspec.Struct, frozen=True):
    """A table of usage: the file of its queries, and the labels that identify its rows."""

    name: str
    queries: str
    labels: Key


PODS = UsageTable("pod_sample", "queries", ("namespace", "pod"))
CONTAINERS = UsageTable("container_sample", "container_queries", ("namespace", "pod", "container"))


@cache
def match_sidecars() -> str:
    """Return a matcher of the containers whose CPU is not the pod's own work (`sidecars.csv`).

    Names alone: a pod's only container, and the one that holds its device, are none.
    """
    return "|".join(row["container"] for row in load_table("sidecars"))


def build_parameters(names: Sequence[str], matchers: str, span: str) -> dict[str, str]:
    """Return what the expressions of `queries.csv` name, beside the selector and the range.

    `names`: metrics of devices. The container that holds a device is no sidecar.
    """
    return {
        "sidecars": match_sidecars(),
        "replicas": list_replica_labels(),
        "holders": build_holders_query(names, matchers, span, CONTAINERS.labels),
    }


class Usage:
    """Queries the host usage of pods, or of their containers."""

    every = GRID

    def __init__(
        self,
        client: PrometheusClient,
        *,
        cluster: str,
        matchers: str = "",
        table: UsageTable = PODS,
    ) -> None:
        self._client = client
        self._cluster = cluster
        self._matchers = matchers
        self._table = table

    def wanted(self, present: Sequence[str]) -> list[dict[str, str]]:
        """Return the queries whose metrics the server has."""
        return list_available(self._table.queries, present)

    def batch(
        self, wanted: Sequence[Mapping[str, str]], held_by: Sequence[str], window: Window
    ) -> Batch | None:
        """Return the table's rows of a window whose ends lie on the grid."""
        holder_query = build_holders_query(held_by, self._matchers, RANGE)
        parameters = build_parameters(held_by, self._matchers, RANGE)
        columns_found: dict[str, dict[Key, Floats]] = {}
        for query in wanted:
            expression = Template(query["expression"]).substitute(
                parameters, selector=self._matchers, range=RANGE
            )
            parts = query_grid(
                self._client,
                f"({expression}) and on (namespace, pod) ({holder_query})",
                window,
                GRID,
            )
            column = columns_found.setdefault(query["column"], {})
            for label_set, values_seen in decode_series_values(parts, window, GRID):
                merge(column, label_set, values_seen, self._table.labels)
        return build_rows(
            self._table.name,
            columns_found,
            window,
            GRID,
            cluster=self._cluster,
            labels=self._table.labels,
        )


def merge(
    column: dict[Key, Floats], label_set: Mapping[str, str], line: Floats, labels: Key = PODS.labels
) -> None:
    """Add a series to its row; series without a pod or container are unattributed and left out."""
    key = tuple(label_set.get(name, "") for name in labels)
    if all(key[1:]):
        earlier = column.get(key)
        column[key] = line if earlier is None else np.where(np.isnan(line), earlier, line)


def build_rows(
    table: str,
    columns_found: Mapping[str, Mapping[Key, Floats]],
    window: Window,
    step: timedelta,
    *,
    cluster: str,
    texts: Mapping[str, Mapping[Key, str]] | None = None,
    labels: Key = PODS.labels,
) -> Batch | None:
    """Return a row per key and stretch with any value; `texts` are by key only."""
    at = list_grid_times(window, step)
    keys = list(dict.fromkeys(key for column in columns_found.values() for key in column))
    if not keys:
        return None
    missing = np.full(len(at), np.nan)
    columns = {
        name: np.array([column.get(key, missing) for key in keys]).ravel()
        for name, column in columns_found.items()
    }
    finite = {n: np.where((c >= 0) & (c < _MOST), c, np.nan) for n, c in columns.items()}
    keep = np.flatnonzero(~np.all([np.isnan(c) for c in finite.values()], axis=0))
    if not len(keep):
        return None
    row_keys = [keys[place] for place in (keep // len(at)).tolist()]
    data: dict[str, object] = {
        "cluster": [cluster] * len(keep),
        "ts": at[keep % len(at)],
        **{name: [key[place] for key in row_keys] for place, name in enumerate(labels)},
        "interval_s": np.full(len(keep), step.total_seconds()),
        **{name: values[keep] for name, values in finite.items()},  # NaN becomes null
    }
    for name, value_by_key in (texts or {}).items():
        data[name] = [value_by_key.get(key) for key in row_keys]
    return Batch.of(table, data)
