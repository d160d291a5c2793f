"""Stop what Kueue manages through its Workload: Kueue reverts the job's own switch at once."""

from collections.abc import Sequence

from actions.cluster.objects import (
    Object,
    annotations,
    format_object,
    has_condition,
    labels,
    meta,
    namespace,
    uid,
)
from actions.cluster.objects import name as name_of
from actions.cluster.objects import to_target as target_of
from actions.reclaim.kinds import kinds
from actions.reclaim.writes import UndoableChange, set_field
from fallow.errors import RefusedError
from fallow.kube.owner_links import kind_in_rows
from fallow.protocols import ClusterReader, Right

GROUP, KIND = "kueue.x-k8s.io", "Workload"
QUEUE = "kueue.x-k8s.io/queue-name"
JOB_UID = "kueue.x-k8s.io/job-uid"
RIGHTS = (Right(GROUP, "workloads", ("get", "list", "patch")),)
RETURNS = "it comes back when its queue admits it"


def is_reverted(obj: Object) -> bool:
    """Return whether Kueue reverts the own switch of objects of this kind."""
    kind = kinds().get(
        kind_in_rows(str(obj.get("apiVersion") or "").rpartition("/")[0], _kind(obj))
    )
    return kind is not None and kind.kueue == "workload"


def is_managed(obj: Object, cluster: ClusterReader) -> bool:
    """Return whether Kueue manages an object: it is in a queue, or has a Workload.

    Raises:
        RefusedError: Workloads may not be read, so the answer is unknown.
        TemporaryError: the API does not answer.
    """
    path = cluster.collection(KIND, GROUP, namespace(obj))
    return path is not None and (_queued(obj) or bool(_workloads(obj, path, cluster)))


def build_writes(obj: Object, cluster: ClusterReader) -> tuple[UndoableChange, ...] | None:
    """Return the writes that deactivate an object's Workloads; None = Kueue does not manage it.

    Raises:
        RefusedError: there is none that can be stopped, or they may not be read.
        TemporaryError: the API does not answer.
    """
    path = cluster.collection(KIND, GROUP, namespace(obj))
    if path is None:
        return None
    workloads = _workloads(obj, path, cluster)
    if not workloads:
        if _queued(obj):
            raise RefusedError(
                f"{format_object(obj)} is in a queue of Kueue, but has no Workload yet"
            )
        return None
    live = [w for w in workloads if not has_condition(w, "Finished")]
    active = [w for w in live if (w.get("spec") or {}).get("active") is not False]
    if not active:
        state = "is stopped already" if live else "is over"
        raise RefusedError(f"{format_object(obj)} {state}: its Workload says so")
    version = path.split("/")[3]
    return tuple(
        set_field(
            w,
            target_of(w, cluster.name, KIND, f"{GROUP}/{version}"),
            f"{path}/{name_of(w)}",
            "/spec/active",
            value=False,
        )
        for w in active
    )


def _workloads(obj: Object, path: str, cluster: ClusterReader) -> Sequence[Object]:
    labelled = cluster.items(path, labels=f"{JOB_UID}={uid(obj)}")
    if labelled:
        return labelled
    return [
        w
        for w in cluster.items(path)
        if any(r.get("uid") == uid(obj) for r in meta(w).get("ownerReferences") or ())
    ]


def _queued(obj: Object) -> bool:
    return bool(labels(obj).get(QUEUE) or annotations(obj).get(QUEUE))


def _kind(obj: Object) -> str:
    return str(obj.get("kind") or "")
