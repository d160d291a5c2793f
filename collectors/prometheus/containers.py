"""Read the host usage of each container of pods that hold devices: cAdvisor -> `container_sample`.

Over whole five minutes that end on the clock's grid, for the same pods as `pod_sample`.
"""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from string import Template

import numpy as np

from collectors.prometheus.client import PrometheusClient
from collectors.prometheus.decode import Floats
from collectors.prometheus.grid import grid_times, holders, query_grid, series_values
from collectors.prometheus.tables import available
from fallow.tables import Batch
from fallow.window import Window

GRID = timedelta(minutes=5)
RANGE = "5m"
Container = tuple[str, str, str]


class ContainerUsage:
    """Queries the host usage of containers; memory is the maximum of the stretch."""

    every = GRID

    def __init__(self, client: PrometheusClient, *, cluster: str, matchers: str = "") -> None:
        self._client, self._cluster, self._matchers = client, cluster, matchers

    def wanted(self, present: Sequence[str]) -> list[dict[str, str]]:
        """Return the queries whose metrics the server has."""
        return available("container_queries", present)

    def batch(
        self, wanted: Sequence[Mapping[str, str]], held_by: Sequence[str], window: Window
    ) -> Batch | None:
        """Return the `container_sample` rows of a window whose ends lie on the grid."""
        holder_query = holders(held_by, self._matchers, RANGE)
        columns_found: dict[str, dict[Container, Floats]] = {}
        for query in wanted:
            question = Template(query["expression"]).substitute(
                selector=self._matchers, range=RANGE
            )
            parts = query_grid(
                self._client, f"({question}) and on (namespace, pod) ({holder_query})", window, GRID
            )
            lines_of = columns_found.setdefault(query["column"], {})
            for labels_seen, values_seen in series_values(parts, window, GRID):
                key = (
                    labels_seen.get("namespace", ""),
                    labels_seen.get("pod", ""),
                    labels_seen.get("container", ""),
                )
                if all(key[1:]):
                    lines_of[key] = values_seen
        return self._rows(columns_found, window)

    def _rows(
        self, columns_found: dict[str, dict[Container, Floats]], window: Window
    ) -> Batch | None:
        at = grid_times(window, GRID)
        keys = list(dict.fromkeys(key for column in columns_found.values() for key in column))
        if not keys:
            return None
        missing = np.full(len(at), np.nan)
        values = {
            name: np.array([column.get(key, missing) for key in keys]).ravel()
            for name, column in columns_found.items()
        }
        keep = np.flatnonzero(~np.all([np.isnan(v) for v in values.values()], axis=0))
        if not len(keep):
            return None
        row_keys = [keys[place] for place in (keep // len(at)).tolist()]
        return Batch.of(
            "container_sample",
            {
                "cluster": [self._cluster] * len(keep),
                "ts": at[keep % len(at)],
                "namespace": [key[0] for key in row_keys],
                "pod": [key[1] for key in row_keys],
                "container": [key[2] for key in row_keys],
                "interval_s": np.full(len(keep), GRID.total_seconds()),
                **{name: column[keep] for name, column in values.items()},  # NaN becomes null
            },
        )
