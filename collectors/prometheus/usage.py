"""What pods that hold devices do on the host: cAdvisor and request counters to `pod_sample`.

Rates are the server's own (`rate` knows counter resets), over whole five minutes that end on the
clock's grid: row ts speaks for [ts, ts + 5 min). Only pods that the device telemetry names are
asked for, joined on the server, because a cluster has many more.
"""

import csv
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib.resources import files
from string import Template

import numpy as np

from collectors.prometheus.client import PrometheusClient, TooMuchError
from collectors.prometheus.decode import Floats, Matrix, labels, matrix
from collectors.prometheus.raw import selector
from fallow.tables import Batch
from fallow.window import Window

GRID = timedelta(minutes=5)
_RANGE = "5m"


@cache
def queries() -> tuple[dict[str, str], ...]:
    """Return the rows of `queries.csv`."""
    text = files("collectors.prometheus").joinpath("queries.csv").read_text(encoding="utf-8")
    return tuple(csv.DictReader(text.splitlines()))


def holders(names: Sequence[str], matchers: str, span: str = _RANGE) -> str:
    """Return an expression for the pods that held devices within `span`.

    Its labels are `namespace` and `pod`, whether or not the scraper renamed them `exported_*`.
    """
    parts = []
    for name in names:
        plain = selector([name], ", ".join(p for p in (matchers, 'exported_pod="", pod!=""') if p))
        other = selector([name], ", ".join(p for p in (matchers, 'exported_pod!=""') if p))
        renamed = f"last_over_time({other}[{span}])"
        for label in ("pod", "namespace"):
            renamed = f'label_replace({renamed}, "{label}", "$1", "exported_{label}", "(.+)")'
        parts += [f"last_over_time({plain}[{span}])", renamed]
    return " or ".join(f"max by (namespace, pod) ({p})" for p in parts)


class Usage:
    """Asks for the use that pods made of their hosts."""

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
        found: dict[str, list[Matrix]] = {}
        whose = holders(held_by, self._matchers)
        for query in wanted:
            expression = Template(query["expression"]).substitute(
                selector=self._matchers, range=_RANGE
            )
            asked = f"({expression}) and on (namespace, pod) ({whose})"
            found.setdefault(query["column"], []).extend(self._ask(asked, window))
        return _rows(found, window, self._cluster)

    def _ask(self, expression: str, window: Window) -> list[Matrix]:
        try:
            body = self._client.query_range(
                expression, window.start + GRID, window.end, GRID.total_seconds()
            )
        except TooMuchError:
            if window.end - window.start <= GRID:
                raise
            half = max(int((window.end - window.start) / GRID) // 2, 1) * GRID
            return [m for part in window.chunks(half) for m in self._ask(expression, part)]
        return [matrix(body)]


def _rows(found: Mapping[str, Sequence[Matrix]], window: Window, cluster: str) -> Batch | None:
    steps = round((window.end - window.start) / GRID)
    start = np.datetime64(window.start.replace(tzinfo=None), "us")
    pods: dict[tuple[str, str], int] = {}
    grids: dict[str, dict[int, Floats]] = {column: {} for column in found}
    for column, parts in found.items():
        for part in parts:
            ends = np.cumsum(part.lengths)
            for text, low, high in zip(part.labels, ends - part.lengths, ends, strict=True):
                words = labels(text)
                pod = (words.get("namespace", ""), words.get("pod", ""))
                if not pod[1]:
                    continue
                code = pods.setdefault(pod, len(pods))
                line = grids[column].setdefault(code, np.full(steps, np.nan))
                at = (part.ts[low:high] - start) // np.timedelta64(GRID) - 1
                line[at] = part.values[low:high]
    if not pods:
        return None
    columns = {
        column: np.array([lines.get(i, np.full(steps, np.nan)) for i in range(len(pods))]).ravel()
        for column, lines in grids.items()
    }
    keep = np.flatnonzero(~np.all([np.isnan(c) for c in columns.values()], axis=0))
    if not len(keep):
        return None
    who = list(pods)
    data: dict[str, object] = {
        "cluster": [cluster] * len(keep),
        "ts": (start + (keep % steps) * np.timedelta64(GRID)).astype("datetime64[us]"),
        "namespace": [who[i][0] for i in keep // steps],
        "pod": [who[i][1] for i in keep // steps],
        "interval_s": np.full(len(keep), GRID.total_seconds()),
    }
    for column, values in columns.items():
        some = values[keep]
        data[column] = np.where(np.isfinite(some), some, np.nan)  # NaN becomes null
    return Batch.of("pod_sample", data)


def whole(window: Window) -> Window | None:
    """Return the part of a window whose ends lie on the grid; None when that is nothing."""
    epoch = datetime.fromtimestamp(0, UTC)
    start = epoch - (epoch - window.start) // GRID * GRID
    end = epoch + (window.end - epoch) // GRID * GRID
    return Window(start, end) if end > start else None
