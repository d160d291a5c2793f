"""List the disruption budgets of pods as the API server has them now."""

from collections.abc import Iterator, Sequence

import msgspec

from fallow.disruptions import CoveringBudget, count_allowed
from fallow.kube.objects import Object, get_labels, get_metadata, get_namespace, get_path, name
from fallow.protocols import ClusterReader
from fallow.selectors import LabelSelector, match_selector, read_selector

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
                generation = get_metadata(budget).get("generation")
                allowed = count_allowed(budget.get("status") or {}, generation)
                yield CoveringBudget(f"{namespace}/{name(budget)}", allowed, covered)


def _read_selector(budget: Object) -> LabelSelector | None:
    """Return a budget's selector; one that cannot be read covers all."""
    try:
        return read_selector(get_path(budget, "spec", "selector"))
    except msgspec.ValidationError:
        return LabelSelector()
