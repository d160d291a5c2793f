"""Simulate disruption budgets and quotas: keep their status up to date."""

from fallow.kube.objects import (
    find_controller,
    get_labels,
    get_namespace,
    get_path,
    has_ended,
    is_deleting,
    name,
)
from fallow.selectors import match_selector, read_selector
from simulator.cluster.controllers.deployments import compute_share
from simulator.cluster.objects import Object, get_kind, is_ready
from simulator.cluster.store_writer import StoreWriter, get_replicas
from simulator.cluster.view import View
from simulator.kube import quota
from simulator.kube.server_metadata import parse_time

FORGIVE_S = 120.0
"""An eviction that did not happen stops counting after this time (DeletionTimeout)."""


def reconcile_budget(obj: Object, view: View, writer: StoreWriter) -> float | None:
    """Write the status of a PodDisruptionBudget; return when to check it again."""
    selector = read_selector(obj["spec"].get("selector"))
    pods = [
        p
        for p in view.of("Pod", get_namespace(obj))
        if not has_ended(p) and match_selector(selector, get_labels(p))
    ]
    by_name = {name(p): p for p in pods}
    marked: dict[str, str] = get_path(obj, "status", "disruptedPods", default={})
    still = {
        n: at
        for n, at in marked.items()
        if n in by_name
        and not is_deleting(by_name[n])
        and parse_time(at) + FORGIVE_S > writer.now_s
    }
    expected, desired = _compute_desired_healthy(obj, pods, view)
    healthy = sum(is_ready(p) and name(p) not in still for p in pods)
    writer.status(
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
    return min((parse_time(at) + FORGIVE_S for at in still.values()), default=None)


def _compute_desired_healthy(obj: Object, pods: list[Object], view: View) -> tuple[int, int]:
    """Return how many pods are expected and how many must stay."""
    minimum, maximum = obj["spec"].get("minAvailable"), obj["spec"].get("maxUnavailable")
    if isinstance(minimum, int):
        return len(pods), minimum
    expected = _scale(pods, view)
    if maximum is not None:
        return expected, max(expected - compute_share(maximum, expected, up=True), 0)
    return expected, compute_share(minimum or 0, expected, up=True)


def _scale(pods: list[Object], view: View) -> int:
    """Return how many replicas the controllers of the pods request together."""
    requested: dict[str, int] = {}
    for pod in pods:
        reference = find_controller(pod)
        if reference is None:
            continue
        above = view.get(get_kind(dict(reference)), get_namespace(pod), reference["name"])
        spec = (above or {}).get("spec") or {}
        has_replicas = "replicas" in spec
        requested.setdefault(reference["uid"], get_replicas(above) if above and has_replicas else 0)
    return sum(requested.values()) or len(pods)


def reconcile_resource_quota(obj: Object, view: View, writer: StoreWriter) -> None:
    """Write a ResourceQuota's limits, and what its namespace uses of them."""
    kinds = []
    for key in get_path(obj, "spec", "hard", default={}):
        plural = key.removeprefix("count/").partition(".")[0]
        kinds += [
            k
            for k in writer.store.catalog
            if k.plural == plural and k.namespaced and k.kind != "Pod"
        ]
    pods = [p for p in view.of("Pod", get_namespace(obj)) if not has_ended(p)]
    parts: list[tuple[object, list[Object]]] = [(writer.store.kind("Pod"), pods)]
    parts += [(k, writer.store.list(k.key, get_namespace(obj))) for k in kinds]
    writer.status(obj, quota.fill_status(obj, parts), "")  # type: ignore[arg-type]
