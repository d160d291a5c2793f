"""Evict pods: a delete that disruption budgets may refuse.

A budget is spent before the pod's own preconditions are checked, so an eviction that fails on
those (409) has spent it all the same, as on the real server.
"""

from typing import Any

from fallow.selectors import match_selector, read_selector
from simulator.kube import server_metadata
from simulator.kube.deletion import DeleteOptions, end_object
from simulator.kube.status import StatusError, build_not_found
from simulator.kube.store import ObjectStore

Object = dict[str, Any]

PDB = "PodDisruptionBudget"
RETRY_S = 10
"""Seconds in a refusal while no controller has evaluated the budget yet."""
VIOLATES = "Cannot evict pod as it would violate the pod's disruption budget."
SEVERAL = (
    "This pod has more than one PodDisruptionBudget, which the eviction subresource does not "
    "support."
)
_UNGUARDED = {"Succeeded", "Failed", "Pending"}


def evict(
    store: ObjectStore, name: str, namespace: str, how: DeleteOptions, *, manager: str
) -> None:
    """Delete a pod if its budget allows; with a dry run only say whether it would.

    Raises:
        ApiError: 404 no such pod, 409 a precondition, 429 the budget, 500 several budgets.
    """
    with store.changed:
        pod = store.get("Pod", name, namespace)
        if pod is None:
            raise build_not_found("", "pods", name)
        if _needs_budget(pod):
            labels = pod["metadata"].get("labels") or {}
            budgets = [
                b
                for b in store.list(PDB, namespace)
                if match_selector(read_selector(b["spec"].get("selector")), labels)
            ]
            if len(budgets) > 1:
                raise StatusError(500, "", SEVERAL)
            if budgets:
                _spend_budget(store, budgets[0], pod, dry_run=how.dry_run)
        _, deleted = end_object(store.kind("Pod"), pod, how, store.now())  # may raise
        if how.dry_run:
            return
        if not deleted:
            _mark(store, pod, manager)
        # the mark made a new version: that precondition has been checked already
        options = DeleteOptions(grace_s=how.grace_s, uid=how.uid, propagation=how.propagation)
        store.end("Pod", name, namespace, options)


def _needs_budget(pod: Object) -> bool:
    phase = (pod.get("status") or {}).get("phase")
    return phase not in _UNGUARDED and "deletionTimestamp" not in pod["metadata"]


def _spend_budget(store: ObjectStore, budget: Object, pod: Object, *, dry_run: bool) -> None:
    meta, status = budget["metadata"], budget.get("status") or {}
    allowed = status.get("disruptionsAllowed", 0)
    healthy, wanted = status.get("currentHealthy", 0), status.get("desiredHealthy", 0)
    if not _is_ready(pod):
        always = budget["spec"].get("unhealthyPodEvictionPolicy") == "AlwaysAllow"
        if always or healthy >= wanted > 0:
            return  # the budget does not count it, so nothing is spent
    if status.get("observedGeneration", 0) < meta.get("generation", 0):
        message = f"The disruption budget {meta['name']} is still being processed by the server."
        raise _build_too_many_requests(message, retry_after=RETRY_S)
    if allowed <= 0:
        raise _build_too_many_requests(
            f"The disruption budget {meta['name']} needs {wanted} healthy pods and has "
            f"{healthy} currently"
        )
    if dry_run:
        return
    new_status = {
        "disruptionsAllowed": allowed - 1,
        "disruptedPods": {pod["metadata"]["name"]: server_metadata.format_time(store.now())},
    }
    store.patch(PDB, meta["name"], meta["namespace"], {"status": new_status}, subresource="status")


def _build_too_many_requests(message: str, *, retry_after: int | None = None) -> StatusError:
    details: Object = {"causes": [{"reason": "DisruptionBudget", "message": message}]}
    if retry_after is not None:
        details["retryAfterSeconds"] = retry_after
    return StatusError(429, "TooManyRequests", VIOLATES, details, retry_after=retry_after)


def _is_ready(pod: Object) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def _mark(store: ObjectStore, pod: Object, manager: str) -> None:
    meta = pod["metadata"]
    condition = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting",
        "lastTransitionTime": server_metadata.format_time(store.now()),
    }
    body = {"status": {"conditions": [condition]}}
    store.patch(
        "Pod",
        meta["name"],
        meta["namespace"],
        body,
        how="strategic",
        subresource="status",
        manager=manager,
    )
