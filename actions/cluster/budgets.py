"""List the disruption budgets of pods as the API server has them now."""

from collections.abc import Iterator, Sequence

import msgspec

from actions.cluster.objects import Object, get_labels, get_metadata, get_namespace, get_path, name
from fallow.disruptions import CoveringBudget
from fallow.protocols import ClusterReader
from fallow.selectors import LabelSelector, match_selector

KIND, GROUP, RESOURCE = "PodDisruptionBudget", "policy", "poddisruptionbudgets"


def list_covering_budgets(
    pods: Sequence[Object], cluster: ClusterReader
) -> Iterator[CoveringBudget]:
    """Yield the budgets that cover some of these pods.

    Raises:
        RefusedError: they may not be listed.
        TemporaryError: the API does not answer.
    """
    for namespace in sorted({get_namespace(pod) for pod in pods}):
        path = cluster.collection(KIND, GROUP, namespace)
        for budget in () if path is None else cluster.items(path):
            selector = _read_selector(budget)
            mine = [p for p in pods if get_namespace(p) == namespace]
            covered = sum(match_selector(selector, get_labels(p)) for p in mine)
            if covered:
                yield CoveringBudget(f"{namespace}/{name(budget)}", _count_allowed(budget), covered)


def _read_selector(budget: Object) -> LabelSelector | None:
    """Return a budget's selector; one that cannot be read covers all."""
    try:
        return msgspec.convert(get_path(budget, "spec", "selector"), LabelSelector | None)
    except msgspec.ValidationError:
        return LabelSelector()


def _count_allowed(budget: Object) -> int | None:
    """Return how many evictions the status allows; None = it is not of this spec, or counts none.

    Source: kubernetes, pkg/registry/core/pod/storage/eviction.go (checkAndDecrement).
    """
    status = budget.get("status") or {}
    seen = status.get("observedGeneration") or 0
    if seen < (get_metadata(budget).get("generation") or 0) or not status.get("expectedPods"):
        return None
    allowed = status.get("disruptionsAllowed") or 0
    return allowed if isinstance(allowed, int) else None
