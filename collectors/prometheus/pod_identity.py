"""Give every pod series of kube-state-metrics the uid of the pod that it is about.

A name is used again (StatefulSets, notebooks), a uid never is. Version 2 of kube-state-metrics
says the uid on every pod series. Version 1 says it on `kube_pod_info`, older ones nowhere: there a
pod is its name and the moment it was created. A name that several pods bore in one window is
settled by time: what was said in a pod's life is about that pod.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta

import msgspec
import numpy as np

from collectors.inventory import pod_uid
from collectors.prometheus.decode import Floats, Matrix, Moments, labels

Rows = list[tuple[dict[str, str], float]]
Name = tuple[str, str]
"""namespace, pod"""
Lifetime = tuple[datetime, datetime]
Fetch = Callable[[Sequence[str], str], Matrix]
"""Return the raw samples of some metrics whose labels match these matchers."""
INFO, CREATED = "kube_pod_info", "kube_pod_created"
_PODS = "kube_pod_"
_NEAR = timedelta(milliseconds=1)
"""Moments of one scrape differ so little: they come as seconds with a fraction."""
_NAMES = 50
"""Pods asked for in one query: an address holds some 8,000 characters."""


class Identified(msgspec.Struct, frozen=True):
    """Series whose every pod row names its uid, and the lifetimes by (namespace, pod, uid)."""

    series: dict[str, Rows]
    lifetimes: dict[tuple[str, str, str], Lifetime]


class _Line(msgspec.Struct, frozen=True):
    """One series with its samples."""

    metric: str
    words: dict[str, str]
    ts: Moments
    values: Floats


def own(words: Mapping[str, str], label: str) -> str:
    """Return what the series is about: `exported_<label>` where the scraper renamed it."""
    return words.get(f"exported_{label}") or words.get(label) or ""


def name_of(words: Mapping[str, str]) -> Name:
    """Return the pod's namespace and name."""
    return own(words, "namespace"), own(words, "pod")


def identify(
    series: Mapping[str, Rows],
    lifetimes: Mapping[tuple[str, str, str], Lifetime],
    *,
    cluster: str,
    recreated: Callable[[], Iterable[Name]],
    fetch: Fetch,
    only: Mapping[str, float],
) -> Identified:
    """Return the series with a uid on every pod row.

    `lifetimes` are those of `kube_pod_info`, by (namespace, pod, uid or ""). `recreated` is asked
    only where a pod has no uid at all: names whose creation changed. `only` are the metrics of
    which only rows of one value count.
    """
    about = {metric: rows for metric, rows in series.items() if metric.startswith(_PODS)}
    lacking = {name_of(w) for rows in about.values() for w, _ in rows if not w.get("uid")}
    if not lacking:
        return Identified(dict(series), dict(lifetimes))
    uids: dict[Name, dict[str, Lifetime]] = defaultdict(dict)
    for (namespace, pod, uid), life in lifetimes.items():
        uids[namespace, pod][uid] = life
    nameless = {name for name, found in uids.items() if "" in found}
    several = {name for name, found in uids.items() if len(found) > 1}
    if nameless:
        several |= set(recreated())
    created = {name_of(w): value for w, value in series.get(CREATED, ())}
    single = _Single(cluster, uids, created)
    made: dict[str, Rows] = dict(series)
    for metric, rows in about.items():
        made[metric] = [
            (words if words.get("uid") else {**words, "uid": single.uid(name_of(words))}, value)
            for words, value in rows
            if words.get("uid") or name_of(words) not in several
        ]
    found = {(*n, u or single.uid(n)): life for n, u, life in _each(uids, several)}
    for name, lines in _settled(several & lacking, list(about), fetch):
        lives = _lives(name, uids[name], lines, cluster)
        found |= {(*name, uid): life for uid, life in lives.items()}
        for line in lines:
            made[line.metric] += _by_life(line, lives, only.get(line.metric))
    return Identified(made, found)


class _Single:
    """The uid of a name that one pod bore."""

    def __init__(
        self,
        cluster: str,
        uids: Mapping[Name, Mapping[str, Lifetime]],
        created: Mapping[Name, float],
    ) -> None:
        self._cluster, self._uids, self._created = cluster, uids, created

    def uid(self, name: Name) -> str:
        said = [uid for uid in self._uids.get(name, ()) if uid]
        return said[0] if said else pod_uid(self._cluster, *name, self._created.get(name))


def _each(
    uids: Mapping[Name, Mapping[str, Lifetime]], several: set[Name]
) -> Iterator[tuple[Name, str, Lifetime]]:
    """Yield lifetimes whose uid is certain: said, or of the only pod of a name."""
    for name, found in uids.items():
        for uid, life in found.items():
            if uid or name not in several:
                yield name, uid, life


def _settled(
    names: Iterable[Name], metrics: Sequence[str], fetch: Fetch
) -> Iterator[tuple[Name, list[_Line]]]:
    """Yield each name with its series that say no uid, and their samples."""
    wanted = sorted(names)
    for at in range(0, len(wanted), _NAMES):
        part = set(wanted[at : at + _NAMES])
        which = "|".join(sorted({re.escape(pod).replace("\\", "\\\\") for _, pod in part}))
        by_name: dict[Name, list[_Line]] = defaultdict(list)
        for label in ("pod", "exported_pod"):
            for line in _lines(fetch(metrics, f'{label}=~"{which}"')):
                words = line.words
                if name_of(words) in part and own(words, "pod") == words[label]:
                    by_name[name_of(words)].append(line)
        yield from by_name.items()


def _lines(found: Matrix) -> Iterator[_Line]:
    ends = np.cumsum(found.lengths)
    for text, low, high in zip(found.labels, ends - found.lengths, ends, strict=True):
        words = labels(text)
        if high > low and not words.get("uid"):
            metric = words.pop("__name__", "")
            yield _Line(metric, words, found.ts[low:high], found.values[low:high])


def _lives(
    name: Name, known: Mapping[str, Lifetime], lines: Sequence[_Line], cluster: str
) -> dict[str, Lifetime]:
    """Return each pod's lifetime by uid: the said ones, else one per moment of creation."""
    said = {uid: life for uid, life in known.items() if uid}
    if said:
        return said
    spans: dict[float, list[datetime]] = defaultdict(list)
    for line in lines:
        if line.metric == CREATED:
            for value in np.unique(line.values).tolist():
                moments = line.ts[line.values == value]
                spans[value] += [_aware(moments[0]), _aware(moments[-1])]
    return {pod_uid(cluster, *name, value): (min(span), max(span)) for value, span in spans.items()}


def _by_life(
    line: _Line, lives: Mapping[str, Lifetime], only: float | None
) -> Iterator[tuple[dict[str, str], float]]:
    """Yield what a series last said in each life that it reaches into."""
    for uid, (first, last) in lives.items():
        inside = (line.ts >= _moment(first - _NEAR)) & (line.ts <= _moment(last + _NEAR))
        if inside.any():
            value = float(line.values[inside][-1])
            if only is None or value == only:
                yield {**line.words, "uid": uid}, value


def _moment(moment: datetime) -> np.datetime64:
    return np.datetime64(moment.astimezone(UTC).replace(tzinfo=None), "us")


def _aware(moment: np.datetime64) -> datetime:
    made: datetime = moment.astype("datetime64[us]").item()
    return made.replace(tzinfo=UTC)
