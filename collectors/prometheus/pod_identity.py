"""Give every pod series of kube-state-metrics the uid of its pod.

Names are used again (StatefulSets, notebooks), uids never. Version 2 of kube-state-metrics has the
uid on every pod series, version 1 on `kube_pod_info`, older versions nowhere: there a pod is
identified by its name and creation time. If several pods had a name in one window, time decides: a
value within a pod's lifetime belongs to that pod.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import UTC, datetime, timedelta

import msgspec
import numpy as np

from collectors.inventory import derive_pod_uid
from collectors.prometheus.decode import Floats, Matrix, Timestamps, decode_labels
from collectors.prometheus.newest import SeriesRow, find_own_label

Name = tuple[str, str]
"""namespace, pod"""
Lifetime = tuple[datetime, datetime]
Fetch = Callable[[Sequence[str], str], Matrix]
"""Return the raw samples of some metrics whose labels match these matchers."""
INFO, CREATED = "kube_pod_info", "kube_pod_created"
_PODS = "kube_pod_"
_NEAR = timedelta(milliseconds=1)
"""Timestamps of one scrape differ by at most this: they are seconds with a fraction."""
_NAMES = 50
"""Pods in one query: a URL holds about 8,000 characters."""


class IdentifiedSeries(msgspec.Struct, frozen=True):
    """Series whose every pod row names its uid, and the lifetimes by (namespace, pod, uid)."""

    series: dict[str, list[SeriesRow]]
    lifetimes: dict[tuple[str, str, str], Lifetime]


class _Line(msgspec.Struct, frozen=True):
    """One series with its samples."""

    metric: str
    words: dict[str, str]
    ts: Timestamps
    values: Floats


def name_of(label_set: Mapping[str, str]) -> Name:
    """Return the pod's namespace and name."""
    return find_own_label(label_set, "namespace"), find_own_label(label_set, "pod")


def identify(
    series: Mapping[str, Sequence[SeriesRow]],
    lifetimes: Mapping[tuple[str, str, str], Lifetime],
    *,
    cluster: str,
    recreated: Callable[[], Iterable[Name]],
    fetch: Fetch,
    only: Mapping[str, float],
) -> IdentifiedSeries:
    """Return the series with a uid on every pod row.

    `lifetimes` are those of `kube_pod_info`, by (namespace, pod, uid or ""). `recreated` is called
    only where a pod has no uid at all: it returns names whose creation time changed. `only` names
    the metrics of which only rows of one value count.
    """
    rows_by_metric = {metric: list(rows) for metric, rows in series.items()}
    about = [metric for metric in series if metric.startswith(_PODS)]
    lacking = {name_of(r.labels) for m in about for r in series[m] if not r.labels.get("uid")}
    if not lacking:
        return IdentifiedSeries(rows_by_metric, dict(lifetimes))
    uids: dict[Name, dict[str, Lifetime]] = defaultdict(dict)
    for (namespace, pod, uid), lifetime in lifetimes.items():
        uids[namespace, pod][uid] = lifetime
    several = _find_reused_names(uids, recreated)
    created = {name_of(row.labels): row.value for row in series.get(CREATED, ())}
    single = _Single(cluster, uids, created)
    for metric in about:
        rows_by_metric[metric] = _add_uids(series[metric], single, several)
    lifetimes_by_pod = {
        (*n, u or single.uid(n)): lifetime for n, u, lifetime in _list_each(uids, several)
    }
    for name, lines in _list_unnamed_series(several & lacking, about, fetch):
        lifetimes_of = _find_lives(name, uids[name], lines, cluster)
        lifetimes_by_pod |= {(*name, uid): lifetime for uid, lifetime in lifetimes_of.items()}
        for line in lines:
            rows_by_metric[line.metric] += _split_by_life(line, lifetimes_of, only.get(line.metric))
    return IdentifiedSeries(rows_by_metric, lifetimes_by_pod)


def _find_reused_names(
    uids: Mapping[Name, Mapping[str, Lifetime]], recreated: Callable[[], Iterable[Name]]
) -> set[Name]:
    """Return the names that several pods bore, one after another."""
    several = {name for name, lifetimes_by_pod in uids.items() if len(lifetimes_by_pod) > 1}
    if any("" in lifetimes_by_pod for lifetimes_by_pod in uids.values()):
        several |= set(recreated())
    return several


def _add_uids(
    rows: Sequence[SeriesRow], single: "_Single", several: AbstractSet[Name]
) -> list[SeriesRow]:
    """Return the rows with a uid each, without those of a name that several pods bore."""
    return [
        row
        if row.labels.get("uid")
        else row._replace(labels={**row.labels, "uid": single.uid(name_of(row.labels))})
        for row in rows
        if row.labels.get("uid") or name_of(row.labels) not in several
    ]


class _Single:
    """The uid of a name that only one pod had."""

    def __init__(
        self,
        cluster: str,
        uids: Mapping[Name, Mapping[str, Lifetime]],
        created: Mapping[Name, float],
    ) -> None:
        self._cluster, self._uids, self._created = cluster, uids, created

    def uid(self, name: Name) -> str:
        uids_stated = [uid for uid in self._uids.get(name, ()) if uid]
        return (
            uids_stated[0]
            if uids_stated
            else derive_pod_uid(self._cluster, *name, self._created.get(name))
        )


def _list_each(
    uids: Mapping[Name, Mapping[str, Lifetime]], several: set[Name]
) -> Iterator[tuple[Name, str, Lifetime]]:
    """Yield lifetimes with a certain uid: given, or of the only pod of a name."""
    for name, lifetimes_of_name in uids.items():
        for uid, lifetime in lifetimes_of_name.items():
            if uid or name not in several:
                yield name, uid, lifetime


def _list_unnamed_series(
    names: Iterable[Name], metrics: Sequence[str], fetch: Fetch
) -> Iterator[tuple[Name, list[_Line]]]:
    """Yield each name with its series without a uid, and their samples."""
    names_wanted = sorted(names)
    for at in range(0, len(names_wanted), _NAMES):
        part = set(names_wanted[at : at + _NAMES])
        which = "|".join(sorted({re.escape(pod).replace("\\", "\\\\") for _, pod in part}))
        by_name: dict[Name, list[_Line]] = defaultdict(list)
        for label in ("pod", "exported_pod"):
            for line in _split_lines(fetch(metrics, f'{label}=~"{which}"')):
                label_set = line.words
                if name_of(label_set) in part and find_own_label(label_set, "pod") == label_set.get(
                    label
                ):
                    by_name[name_of(label_set)].append(line)
        yield from by_name.items()


def _split_lines(matrix_found: Matrix) -> Iterator[_Line]:
    ends = np.cumsum(matrix_found.lengths)
    for text, low, high in zip(matrix_found.labels, ends - matrix_found.lengths, ends, strict=True):
        label_set = decode_labels(text)
        if high > low and not label_set.get("uid"):
            metric = label_set.pop("__name__", "")
            yield _Line(metric, label_set, matrix_found.ts[low:high], matrix_found.values[low:high])


def _find_lives(
    name: Name, lifetimes_known: Mapping[str, Lifetime], lines: Sequence[_Line], cluster: str
) -> dict[str, Lifetime]:
    """Return each pod's lifetime by uid: the given ones, else one per creation time."""
    lifetimes_stated = {uid: lifetime for uid, lifetime in lifetimes_known.items() if uid}
    if lifetimes_stated:
        return lifetimes_stated
    spans: dict[float, list[datetime]] = defaultdict(list)
    for line in lines:
        if line.metric == CREATED:
            for value in np.unique(line.values).tolist():
                creation_times = line.ts[line.values == value]
                spans[value] += [_add_zone(creation_times[0]), _add_zone(creation_times[-1])]
    return {
        derive_pod_uid(cluster, *name, value): (min(span), max(span))
        for value, span in spans.items()
    }


def _split_by_life(
    line: _Line, lifetimes_of: Mapping[str, Lifetime], only: float | None
) -> Iterator[SeriesRow]:
    """Yield a series' last value in each lifetime that it overlaps."""
    for uid, (first, last) in lifetimes_of.items():
        inside = (line.ts >= _convert_timestamp(first - _NEAR)) & (
            line.ts <= _convert_timestamp(last + _NEAR)
        )
        if inside.any():
            value = float(line.values[inside][-1])
            if only is None or value == only:
                newest = _add_zone(line.ts[inside][-1]).timestamp()
                yield SeriesRow({**line.words, "uid": uid}, value, newest)


def _convert_timestamp(timestamp: datetime) -> np.datetime64:
    return np.datetime64(timestamp.astimezone(UTC).replace(tzinfo=None), "us")


def _add_zone(timestamp: np.datetime64) -> datetime:
    aware: datetime = timestamp.astype("datetime64[us]").item()
    return aware.replace(tzinfo=UTC)
