"""Stop what Kueue manages through its Workload: Kueue reverts the job's own switch at once."""

from collections.abc import Sequence

from actions.reclaim.kinds import read_kinds
from actions.reclaim.writes import UndoableChange, set_field
from fallow.errors import RefusedError
from fallow.kube.objects import (
    Object,
    format_object,
    get_annotations,
    get_labels,
    get_metadata,
    get_namespace,
    get_uid,
    has_condition,
)
from fallow.kube.objects import name as name_of
from fallow.kube.objects import to_target as target_of
from fallow.kube.owner_links import get_row_kind
from fallow.protocols import ClusterReader, Right

GROUP, KIND = "kueue.x-k8s.io", "Workload"
QUEUE = "kueue.x-k8s.io/queue-name"
JOB_UID = "kueue.x-k8s.io/job-uid"
RIGHTS = (Right(GROUP, "workloads", ("get", "list", "patch")),)
RETURNS = "it comes back when its queue admits it"


def is_reverted(obj: Object) -> bool:
    """Return whether Kueue reverts the own switch of objects of this kind."""
    kind = read_kinds().get(
        get_row_kind(str(obj.get("apiVersion") or "").rpartition("/")[0], _get_kind(obj))
    )
    return kind is not None and kind.kueue == "workload"


def is_managed(obj: Object, cluster: ClusterReader) -> bool:
    """Return whether Kueue manages an object: it is in a queue, or has a Workload.

    Raises:
        RefusedError: Workloads may not be read, so the answer is unknown.
        TemporaryError: the API does not answer.
    """
    path = cluster.collection(KIND, GROUP, get_namespace(obj))
    return path is not None and (_is_queued(obj) or bool(_list_workloads(obj, path, cluster)))


def build_writes(
    obj: Object, cluster: ClusterReader, *, active: bool = False
) -> tuple[UndoableChange, ...] | None:
    """Return the writes that deactivate an object's Workloads; None = Kueue does not manage it.

    `active`: the writes that activate those that are inactive.

    Raises:
        RefusedError: there is none that can be stopped, or they may not be read.
        TemporaryError: the API does not answer.
    """
    path = cluster.collection(KIND, GROUP, get_namespace(obj))
    if path is None:
        return None
    workloads = _list_workloads(obj, path, cluster)
    if not workloads:
        if _is_queued(obj):
            raise RefusedError(
                f"{format_object(obj)} is in a queue of Kueue, but has no Workload yet"
            )
        return None
    live = [w for w in workloads if not has_condition(w, "Finished")]
    chosen = [w for w in live if ((w.get("spec") or {}).get("active") is False) is active]
    if not chosen:
        word = "runs" if active else "is stopped"
        state = f"{word} already" if live else "is over"
        raise RefusedError(f"{format_object(obj)} {state}: its Workload says so")
    version = path.split("/")[3]
    return tuple(
        set_field(
            w,
            target_of(w, cluster.name, KIND, f"{GROUP}/{version}"),
            f"{path}/{name_of(w)}",
            "/spec/active",
            value=active,
        )
        for w in chosen
    )


def _list_workloads(obj: Object, path: str, cluster: ClusterReader) -> Sequence[Object]:
    labelled = cluster.items(path, labels=f"{JOB_UID}={get_uid(obj)}")
    if labelled:
        return labelled
    return [
        w
        for w in cluster.items(path)
        if any(r.get("uid") == get_uid(obj) for r in get_metadata(w).get("ownerReferences") or ())
    ]


def _is_queued(obj: Object) -> bool:
    return bool(get_labels(obj).get(QUEUE) or get_annotations(obj).get(QUEUE))


def _get_kind(obj: Object) -> str:
    return str(obj.get("kind") or "")
