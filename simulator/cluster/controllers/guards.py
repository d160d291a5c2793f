"""What limits others: disruption budgets and quotas, kept up to date."""

from simulator.cluster.clerk import Clerk, replicas
from simulator.cluster.controllers.deployments import share
from simulator.cluster.objects import (
    Object,
    called,
    controller,
    deep,
    going,
    moment,
    name,
    namespace,
    over,
    ready,
    selects,
    words,
)
from simulator.cluster.view import View
from simulator.kube import quota

MANAGER = "kube-controller-manager"
FORGIVE_S = 120.0
"""An eviction that never happened stops counting after so long (DeletionTimeout)."""


def budget(obj: Object, view: View, clerk: Clerk) -> float | None:
    """Write the status of a PodDisruptionBudget; return when to look again."""
    pods = [
        p
        for p in view.of("Pod", namespace(obj))
        if not over(p) and selects(obj["spec"].get("selector"), words(p, "labels"))
    ]
    by_name = {name(p): p for p in pods}
    marked: dict[str, str] = deep(obj, "status", "disruptedPods", default={})
    still = {
        n: at
        for n, at in marked.items()
        if n in by_name and not going(by_name[n]) and moment(at) + FORGIVE_S > clerk.now_s
    }
    expected, desired = _wanted(obj, pods, view)
    healthy = sum(ready(p) and name(p) not in still for p in pods)
    clerk.status(
        obj,
        {
            "expectedPods": expected,
            "desiredHealthy": desired,
            "currentHealthy": healthy,
            "disruptionsAllowed": max(healthy - desired, 0),
            "disruptedPods": {n: still.get(n) for n in {*marked, *still}},
            "observedGeneration": obj["metadata"].get("generation", 1),
        },
        "",
    )
    return min((moment(at) + FORGIVE_S for at in still.values()), default=None)


def _wanted(obj: Object, pods: list[Object], view: View) -> tuple[int, int]:
    """Return how many pods are expected and how many must stay."""
    least, most = obj["spec"].get("minAvailable"), obj["spec"].get("maxUnavailable")
    if isinstance(least, int):
        return len(pods), least
    expected = _scale(pods, view)
    if most is not None:
        return expected, max(expected - share(most, expected, up=True), 0)
    return expected, share(least or 0, expected, up=True)


def _scale(pods: list[Object], view: View) -> int:
    """Return what the controllers of the pods ask for together."""
    asked: dict[str, int] = {}
    for one in pods:
        reference = controller(one)
        if reference is None:
            continue
        above = view.get(called(dict(reference)), namespace(one), reference["name"])
        spec = (above or {}).get("spec") or {}
        counted = "replicas" in spec
        asked.setdefault(reference["uid"], replicas(above) if above and counted else 0)
    return sum(asked.values()) or len(pods)


def resource_quota(obj: Object, view: View, clerk: Clerk) -> None:
    """Write what a ResourceQuota allows and what its namespace uses of it."""
    kinds = []
    for key in deep(obj, "spec", "hard", default={}):
        plural = key.removeprefix("count/").partition(".")[0]
        kinds += [
            k
            for k in clerk.store.catalog
            if k.plural == plural and k.namespaced and k.kind != "Pod"
        ]
    pods = [p for p in view.of("Pod", namespace(obj)) if not over(p)]
    parts: list[tuple[object, list[Object]]] = [(clerk.store.kind("Pod"), pods)]
    parts += [(k, clerk.store.list(k.key, namespace(obj))) for k in kinds]
    clerk.status(obj, quota.filled(obj, parts), "")  # type: ignore[arg-type]
