"""What pods that hold devices do on the host: cAdvisor and request counters to `pod_sample`.

Over whole five minutes that end on the clock's grid. Only pods that the device telemetry names are
asked for, joined on the server, because a cluster has many more. Series that two replicas of one
Prometheus both scraped count once: by what names a container, an interface or a disk, else without
the labels that tell replicas apart.
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
from collectors.prometheus.grid import asked, holders, lines, moments, replicas
from fallow.tables import Batch
from fallow.window import Window

GRID = timedelta(minutes=5)
RANGE = "5m"


@cache
def queries() -> tuple[dict[str, str], ...]:
    """Return the rows of `queries.csv`."""
    text = files("collectors.prometheus").joinpath("queries.csv").read_text(encoding="utf-8")
    return tuple(csv.DictReader(text.splitlines()))


@cache
def sidecars() -> str:
    """Return a matcher of the containers whose CPU is not the pod's own work (`sidecars.csv`)."""
    text = files("collectors.prometheus").joinpath("sidecars.csv").read_text(encoding="utf-8")
    return "|".join(row["container"] for row in csv.DictReader(text.splitlines()))


class Usage:
    """Asks for the use that pods made of their hosts."""

    every = GRID

    def __init__(self, client: PrometheusClient, *, cluster: str, matchers: str = "") -> None:
        self._client = client
        self._cluster = cluster
        self._matchers = matchers

    def wanted(self, present: Sequence[str]) -> list[dict[str, str]]:
        """Return the queries whose metrics the server has."""
        there = set(present)
        return [q for q in queries() if q["needs"] in there]

    def batch(
        self, wanted: Sequence[Mapping[str, str]], held_by: Sequence[str], window: Window
    ) -> Batch | None:
        """Return the `pod_sample` rows of a window whose ends lie on the grid."""
        whose = holders(held_by, self._matchers, RANGE)
        found: dict[str, dict[tuple[str, str], Floats]] = {}
        for query in wanted:
            expression = Template(query["expression"]).substitute(
                selector=self._matchers, range=RANGE, sidecars=sidecars(), replicas=replicas()
            )
            parts = asked(
                self._client, f"({expression}) and on (namespace, pod) ({whose})", window, GRID
            )
            column = found.setdefault(query["column"], {})
            for words, line in lines(parts, window, GRID):
                merge(column, words, line)
        return rows("pod_sample", found, window, GRID, cluster=self._cluster)


def merge(column: dict[tuple[str, str], Floats], words: Mapping[str, str], line: Floats) -> None:
    """Put a series into its pod's line; series without a pod are nobody's."""
    pod = (words.get("namespace", ""), words.get("pod", ""))
    if pod[1]:
        known = column.get(pod)
        column[pod] = line if known is None else np.where(np.isnan(line), known, line)


def rows(
    table: str,
    found: Mapping[str, Mapping[tuple[str, str], Floats]],
    window: Window,
    every: timedelta,
    *,
    cluster: str,
    words: Mapping[str, Mapping[tuple[str, str], str]] | None = None,
) -> Batch | None:
    """Return a row per pod and stretch in which anything is known; `words` are by pod alone."""
    at = moments(window, every)
    pods = list(dict.fromkeys(pod for column in found.values() for pod in column))
    if not pods:
        return None
    missing = np.full(len(at), np.nan)
    columns = {
        name: np.array([column.get(pod, missing) for pod in pods]).ravel()
        for name, column in found.items()
    }
    finite = {name: np.where(np.isfinite(c), c, np.nan) for name, c in columns.items()}
    keep = np.flatnonzero(~np.all([np.isnan(c) for c in finite.values()], axis=0))
    if not len(keep):
        return None
    whose = [pods[place] for place in (keep // len(at)).tolist()]
    data: dict[str, object] = {
        "cluster": [cluster] * len(keep),
        "ts": at[keep % len(at)],
        "namespace": [space for space, _ in whose],
        "pod": [pod for _, pod in whose],
        "interval_s": np.full(len(keep), every.total_seconds()),
        **{name: values[keep] for name, values in finite.items()},  # NaN becomes null
    }
    for name, said in (words or {}).items():
        data[name] = [said.get(pod) for pod in whose]
    return Batch.of(table, data)
