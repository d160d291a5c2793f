"""Refuse a server that holds several clusters: their nodes, pods and GPUs would be mixed."""

from collections import Counter
from collections.abc import Iterable, Mapping

from collectors.prometheus import tables
from fallow.errors import UsageError

_MOST = 5


def list_cluster_labels() -> tuple[str, ...]:
    """Return the labels that name a series' cluster (`cluster_labels.csv`)."""
    return tuple(row["label"] for row in tables.load_table("cluster_labels"))


def find_cluster(series_labels: Mapping[str, str]) -> str:
    """Return the cluster that a series names; empty = none."""
    names = (series_labels.get(label) for label in list_cluster_labels())
    return next(filter(None, names), "")


def find_mixture(series: Iterable[Mapping[str, str]]) -> UsageError | None:
    """Return the error of series of several clusters, with the selector to set; None = of one."""
    names = Counter(
        (label, series_labels[label])
        for series_labels in series
        for label in list_cluster_labels()
        if series_labels.get(label)
    )
    for label in list_cluster_labels():
        values = sorted(value for each, value in names if each == label)
        if len(values) > 1:
            listed = ", ".join(values[:_MOST]) + (" ..." if len(values) > _MOST else "")
            return UsageError(
                f"this Prometheus holds {len(values)} clusters ({label}: {listed}): their nodes "
                "and GPUs would be taken for one cluster's",
                hint=f"read one at a time: FALLOW_PROMETHEUS__SELECTOR='{label}=\"{values[0]}\"' "
                f"fallow --cluster {values[0]} ...",
            )
    return None
