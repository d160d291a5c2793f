"""Read metrics of a job's progress: steps, samples or tokens since its start."""

from collections.abc import Collection
from fnmatch import fnmatchcase
from functools import cache

from collectors import exposition
from fallow.resources import read_table

NAMESPACES = ("exported_namespace", "namespace")
PODS = ("exported_pod", "pod")
Pod = tuple[str, str]
"""Namespace and name."""


@cache
def read_progress_metrics() -> tuple[str, ...]:
    """Return the names of `progress_metrics.csv`."""
    return tuple(row["name"] for row in read_table("collectors", "progress_metrics.csv"))


def read_progress(
    body: bytes, names: Collection[str], of: Pod
) -> tuple[dict[tuple[Pod, str], float], set[Pod]]:
    """Return the progress in an exposition, by pod and metric, and the pods that it may not name.

    `of`: the pod that the exposition belongs to; with a `*`, its series name pods that match. The
    progress is the sum over the series. Those that name no pod, and values that are not finite, are
    left out.
    """
    progress: dict[tuple[Pod, str], float] = {}
    others: set[Pod] = set()
    for line in exposition.read(body).lines:
        if line.name not in names or not abs(line.value) < float("inf"):
            continue
        pod = _find_pod(exposition.parse_labels(line.labels)) if "*" in "".join(of) else of
        if pod is None:
            continue
        if not all(map(fnmatchcase, pod, of)):
            others.add(pod)
            continue
        progress[pod, line.name] = progress.get((pod, line.name), 0.0) + line.value
    return {key: value for key, value in progress.items() if value < float("inf")}, others


def _find_pod(label_set: dict[str, str]) -> Pod | None:
    namespace, pod = (
        next((label_set[label] for label in labels if label_set.get(label)), "")
        for labels in (NAMESPACES, PODS)
    )
    return (namespace, pod) if namespace and pod else None
