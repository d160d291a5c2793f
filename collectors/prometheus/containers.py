"""What each container of a pod that holds devices uses of its host: cAdvisor to `container_sample`.

Over whole five minutes that end on the clock's grid, as `pod_sample`, and of the same pods.
"""

import csv
from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import cache
from importlib.resources import files
from string import Template

import numpy as np

from collectors.prometheus.client import PrometheusClient
from collectors.prometheus.decode import Floats
from collectors.prometheus.grid import asked, holders, lines, moments
from fallow.tables import Batch
from fallow.window import Window

GRID = timedelta(minutes=5)
RANGE = "5m"
Container = tuple[str, str, str]


@cache
def queries() -> tuple[dict[str, str], ...]:
    """Return the rows of `container_queries.csv`."""
    text = files("collectors.prometheus").joinpath("container_queries.csv").read_text("utf-8")
    return tuple(csv.DictReader(text.splitlines()))


class Containers:
    """Asks for the use that containers made of their hosts; memory is the most of the stretch."""

    every = GRID

    def __init__(self, client: PrometheusClient, *, cluster: str, matchers: str = "") -> None:
        self._client, self._cluster, self._matchers = client, cluster, matchers

    def wanted(self, present: Sequence[str]) -> list[dict[str, str]]:
        """Return the queries whose metrics the server has."""
        there = set(present)
        return [q for q in queries() if q["needs"] in there]

    def batch(
        self, wanted: Sequence[Mapping[str, str]], held_by: Sequence[str], window: Window
    ) -> Batch | None:
        """Return the `container_sample` rows of a window whose ends lie on the grid."""
        whose = holders(held_by, self._matchers, RANGE)
        found: dict[str, dict[Container, Floats]] = {}
        for query in wanted:
            question = Template(query["expression"]).substitute(
                selector=self._matchers, range=RANGE
            )
            parts = asked(
                self._client, f"({question}) and on (namespace, pod) ({whose})", window, GRID
            )
            lines_of = found.setdefault(query["column"], {})
            for words, line in lines(parts, window, GRID):
                key = (words.get("namespace", ""), words.get("pod", ""), words.get("container", ""))
                if all(key[1:]):
                    lines_of[key] = line
        return self._rows(found, window)

    def _rows(self, found: dict[str, dict[Container, Floats]], window: Window) -> Batch | None:
        at = moments(window, GRID)
        keys = list(dict.fromkeys(key for column in found.values() for key in column))
        if not keys:
            return None
        missing = np.full(len(at), np.nan)
        values = {
            name: np.array([column.get(key, missing) for key in keys]).ravel()
            for name, column in found.items()
        }
        keep = np.flatnonzero(~np.all([np.isnan(v) for v in values.values()], axis=0))
        if not len(keep):
            return None
        whose = [keys[place] for place in (keep // len(at)).tolist()]
        return Batch.of(
            "container_sample",
            {
                "cluster": [self._cluster] * len(keep),
                "ts": at[keep % len(at)],
                "namespace": [key[0] for key in whose],
                "pod": [key[1] for key in whose],
                "container": [key[2] for key in whose],
                "interval_s": np.full(len(keep), GRID.total_seconds()),
                **{name: column[keep] for name, column in values.items()},  # NaN becomes null
            },
        )
