"""Answer `fallow why-pending`: where the pods of a workload that wait for GPUs would fit."""

from datetime import datetime
from typing import TYPE_CHECKING, Any

from actions.gate_answers import find_subject, format_subject
from fallow.errors import UsageError
from fallow.models import Subject
from runtime.operations import windows
from warehouse.placement.pending_places import PendingAnswer, PendingPlaces

if TYPE_CHECKING:
    from warehouse.lake import Warehouse

NOTE = (
    "a place fits if all waiting pods can be placed there at once: devices that are known to be "
    "free, CPU, memory, labels, taints and quota; volumes, images and affinity between pods are "
    "not checked"
)


def explain_why_pending(
    warehouse: "Warehouse", workload: str, *, at: datetime, cluster: str | None
) -> tuple[PendingAnswer, datetime]:
    """Return where a waiting workload fits, and for which time: the end of the data at most.

    `cluster` narrows where the workload waits; the places are those of every cluster.

    Raises:
        UsageError: no workload, or several that wait, have this name.
    """
    extent = windows.find_extent(warehouse, cluster)
    last = at if extent is None else min(at, extent.end)
    places = PendingPlaces(warehouse, last)
    pending = {
        key: pods
        for key, pods in places.list_pending().items()
        if cluster is None or key[0] == cluster
    }
    if not pending:
        raise UsageError(
            "no workload waits for GPUs",
            hint="fallow why-not WORKLOAD says why one that runs is not acted upon",
        )
    subjects = {Subject(c, ns, kind, name): (c, ns, kind, name) for c, ns, kind, name in pending}
    try:
        subject = find_subject(workload, subjects)
    except UsageError as error:
        names = sorted(map(format_subject, subjects))
        raise UsageError(
            f"{error.message}: of those that wait for GPUs", hint=f"these wait: {', '.join(names)}"
        ) from error
    key = subjects[subject]
    return places.explain(key, pending[key]), last


def describe_pending(answer: PendingAnswer, at: datetime) -> dict[str, Any]:
    """Return the document of an answer without its places."""
    cluster, namespace, kind, name = answer.key
    return {
        "workload": f"{kind}/{namespace}/{name}",
        "cluster": cluster,
        "at": at.isoformat(),
        "pods": answer.pods,
        "gpus": answer.gpus,
        "pending_since": answer.since.isoformat(),
        "answer": answer.answer,
        "why": answer.why,
        "notes": [NOTE],
    }


def build_place_rows(answer: PendingAnswer) -> list[dict[str, Any]]:
    """Return a row per place; pool and zone are null for the whole cluster."""
    return [
        {
            "cluster": place.cluster,
            "pool": place.pool,
            "zone": place.zone,
            "state": place.state,
            "free": place.free,
            "room": place.room,
            "why": place.why,
            "nodes": list(place.nodes),
        }
        for place in answer.places
    ]
