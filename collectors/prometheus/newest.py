"""Which series of kube-state-metrics are current: the newest of an object, by their timestamps.

A server keeps the series of an instance that was restarted, and of what an object no longer has,
beside those of today. `last_over_time` returns all of them, in no order.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from fallow.window import Window

Rows = list[tuple[dict[str, str], float]]
LOOKBACK = timedelta(minutes=5)
"""How long a server takes a sample as current. What is older than its object's newest sample by
more is gone; less may be another instance, which is scraped at another moment."""
MOST_TIMES = 5_000_000
"""Values that a server holds for one query; its usual limit is ten times as many."""
OWNERS_WITH_ANNOTATIONS = {
    "Deployment": "deployment",
    "ReplicaSet": "replicaset",
    "StatefulSet": "statefulset",
    "Job": "job_name",
    "CronJob": "cronjob",
}
"""Kinds of owners whose annotations and labels have series, and the label that names the object."""
_OBJECTS = {
    "pod": ("namespace", "pod", "uid"),
    "node": ("node",),
    "namespace": ("namespace",),
    **{kind.lower(): ("namespace", label) for kind, label in OWNERS_WITH_ANNOTATIONS.items()},
}
"""The labels that name an object, by the word after `kube_` in its metrics."""


Query = Callable[[str, Window], Rows]


class SeriesRow(NamedTuple):
    """A series of kube-state-metrics: its last value, and when (unix seconds; 0 = not known)."""

    labels: dict[str, str]
    value: float
    newest: float


def find_own_label(label_set: Mapping[str, str], label: str) -> str:
    """Return the series' own label: `exported_<label>` where the scraper renamed it."""
    return label_set.get(f"exported_{label}") or label_set.get(label) or ""


def build_key(label_set: Mapping[str, str], labels: Sequence[str]) -> tuple[str, ...]:
    """Return an object's key: its own labels of these names."""
    return tuple(find_own_label(label_set, label) for label in labels)


def query_rows(query: Query, selected: str, only: str, window: Window) -> list[SeriesRow]:
    """Return the series that a selector has in a window, with their last values and their times.

    `query` answers an expression at a window's end, with its length for `$span`. `only` is a
    condition on the value.
    """
    rows = query(f"last_over_time({selected}[$span]){only}", window)
    newest: dict[frozenset[tuple[str, str]], float] = {}
    steps = max(MOST_TIMES // max(len(rows), 1), 1)
    at = f"timestamp({selected})"
    often = f"[$span:{round(LOOKBACK.total_seconds())}s]"
    for part in window.chunks(LOOKBACK * steps) if rows else ():
        times = query(f"{at} or max_over_time({at}{often})", part)
        newest.update((_build_series_key(label_set), ts) for label_set, ts in times)
    return [
        SeriesRow(label_set, value, newest.get(_build_series_key(label_set), 0))
        for label_set, value in rows
    ]


def _build_series_key(label_set: Mapping[str, str]) -> frozenset[tuple[str, str]]:
    return frozenset(item for item in label_set.items() if item[0] != "__name__")


def split_past(
    series: Mapping[str, Sequence[SeriesRow]], until: datetime
) -> tuple[dict[str, Rows], dict[str, Rows]]:
    """Return the series of a window that are current, oldest first, and those that are past.

    Past is what is older than the newest series of its object, of the same metric or of the
    object's `*_info`.
    """
    current: dict[str, Rows] = {}
    past: dict[str, Rows] = {}
    lookback_s = LOOKBACK.total_seconds()
    infos = {noun: _find_newest(series.get(f"kube_{noun}_info", ()), noun) for noun in _OBJECTS}
    for metric, rows in series.items():
        noun = metric.split("_")[1]
        newest = _find_newest(rows, noun)
        timed: list[tuple[float, bool, tuple[dict[str, str], float]]] = []
        for label_set, value, ts in rows:
            key = build_key(label_set, _OBJECTS[noun])
            end = max(newest[key], infos[noun].get(key, 0))
            if not ts and end < until.timestamp() - lookback_s:
                ts = end  # noqa: PLW2901  (shown so shortly before its object's end that no step saw it)
            # An info is merged with older ones: a label that it lacks may be unknown.
            is_past = ts < end - lookback_s and metric != f"kube_{noun}_info"
            timed.append((ts, is_past, (label_set, value)))
        timed.sort(key=lambda row: row[0])
        current[metric] = [row for _, is_past, row in timed if not is_past]
        past[metric] = [row for _, is_past, row in timed if is_past]
    return current, past


def _find_newest(rows: Sequence[SeriesRow], noun: str) -> dict[tuple[str, ...], float]:
    newest: dict[tuple[str, ...], float] = {}
    for label_set, _, ts in rows:
        key = build_key(label_set, _OBJECTS[noun])
        newest[key] = max(newest.get(key, 0), ts)
    return newest
