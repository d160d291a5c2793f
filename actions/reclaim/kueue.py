"""What Kueue manages is stopped through its Workload: the job's own switch is undone at once."""

from collections.abc import Sequence

from actions.cluster.objects import Object, annotations, holds, labels, meta, namespace, shown, uid
from actions.cluster.objects import name as name_of
from actions.cluster.objects import target as target_of
from actions.reclaim.kinds import kinds
from actions.reclaim.writes import Writes, field
from fallow.errors import RefusedError
from fallow.kube.owner_jumps import called
from fallow.seams import Cluster, Right

GROUP, KIND = "kueue.x-k8s.io", "Workload"
QUEUE = "kueue.x-k8s.io/queue-name"
JOB_UID = "kueue.x-k8s.io/job-uid"
RIGHTS = (Right(GROUP, "workloads", ("get", "list", "patch")),)
RETURNS = "it comes back when its queue admits it"


def reverts(obj: Object) -> bool:
    """Say whether Kueue undoes the own switch of objects of this kind."""
    kind = kinds().get(called(str(obj.get("apiVersion") or "").rpartition("/")[0], _kind(obj)))
    return kind is not None and kind.kueue == "workload"


def managed(obj: Object, cluster: Cluster) -> bool:
    """Say whether Kueue manages an object: it is in a queue, or a Workload is made of it.

    Raises:
        RefusedError: Workloads may not be read, so nobody knows.
        TemporaryError: the API does not answer.
    """
    path = cluster.collection(KIND, GROUP, namespace(obj))
    return path is not None and (_queued(obj) or bool(_workloads(obj, path, cluster)))


def writes(obj: Object, cluster: Cluster) -> tuple[Writes, ...] | None:
    """Return the writes that deactivate an object's Workloads; None = Kueue does not manage it.

    Raises:
        RefusedError: there is none that could be stopped, or they may not be read.
        TemporaryError: the API does not answer.
    """
    path = cluster.collection(KIND, GROUP, namespace(obj))
    if path is None:
        return None
    every = _workloads(obj, path, cluster)
    if not every:
        if _queued(obj):
            raise RefusedError(f"{shown(obj)} is in a queue of Kueue, but has no Workload yet")
        return None
    live = [w for w in every if not holds(w, "Finished")]
    active = [w for w in live if (w.get("spec") or {}).get("active") is not False]
    if not active:
        state = "is stopped already" if live else "is over"
        raise RefusedError(f"{shown(obj)} {state}: its Workload says so")
    version = path.split("/")[3]
    return tuple(
        field(
            w,
            target_of(w, cluster.name, KIND, f"{GROUP}/{version}"),
            f"{path}/{name_of(w)}",
            "/spec/active",
            value=False,
        )
        for w in active
    )


def _workloads(obj: Object, path: str, cluster: Cluster) -> Sequence[Object]:
    found = cluster.items(path, labels=f"{JOB_UID}={uid(obj)}")
    if found:
        return found
    return [
        w
        for w in cluster.items(path)
        if any(r.get("uid") == uid(obj) for r in meta(w).get("ownerReferences") or ())
    ]


def _queued(obj: Object) -> bool:
    return bool(labels(obj).get(QUEUE) or annotations(obj).get(QUEUE))


def _kind(obj: Object) -> str:
    return str(obj.get("kind") or "")
