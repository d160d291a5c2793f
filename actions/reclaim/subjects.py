"""Read the object of a decision in its current state; refuse objects that must not be changed."""

from collections.abc import Sequence

import msgspec

from actions.cluster.allocations import CLAIMS, count_allocated_gpus
from actions.reclaim.kinds import WorkloadKind, read_kinds
from actions.reclaim.writes import UndoableChange
from actions.recommend import read_verbs
from fallow.action_models import Decision, FreedPod, Intent, Target
from fallow.errors import RefusedError
from fallow.kube.objects import (
    Object,
    find_controller,
    get_namespace,
    get_path,
    get_uid,
    has_condition,
    has_ended,
    is_deleting,
    name,
    to_target,
)
from fallow.protocols import ClusterReader, Right

FINISHED = ("Complete", "Completed", "Succeeded", "Failed", "Finished")
"""Conditions of completed work, as in Job, JobSet, TrainJob and the training operator."""
MULTIKUEUE = "kueue.x-k8s.io/multikueue"


class LiveWorkload(msgspec.Struct, frozen=True):
    """An object to act upon: its kind, its current state, and its path."""

    kind: WorkloadKind
    obj: Object
    path: str
    target: Target

    @property
    def later(self) -> Target:
        """The target of a later write: without a version, because that will have changed."""
        return msgspec.structs.replace(self.target, resource_version=None, generation=None)

    def __str__(self) -> str:
        return f"{self.kind.kind}/{self.target.namespace}/{self.target.name}"


def read_workload(decision: Decision, cluster: ClusterReader) -> LiveWorkload:
    """Return the object of a decision in its current state.

    Raises:
        RefusedError: it is gone, another object, being deleted, complete, or controlled by an
            owner.
        TemporaryError: the API does not answer.
    """
    cluster_name, kind_name, namespace, name = decision.subject
    if cluster_name != cluster.name:
        raise RefusedError(
            f"{kind_name}/{namespace}/{name} is in cluster {cluster_name}, not {cluster.name}"
        )
    kind = read_kinds()[kind_name]
    path = cluster.collection(kind.api_kind, kind.group, namespace)
    if path is None:
        raise RefusedError(f"{cluster.name} serves no {kind.kind} of {kind.group or 'the core'}")
    obj = cluster.get(f"{path}/{name}")
    if obj is None:
        raise RefusedError(f"{kind_name}/{namespace}/{name} is gone")
    workload = LiveWorkload(kind, obj, f"{path}/{name}", to_target(obj, cluster.name))
    if decision.uid and get_uid(obj) != decision.uid:
        raise RefusedError(f"{workload} is another object of that name: its uid is {get_uid(obj)}")
    if is_deleting(obj):
        raise RefusedError(f"{workload} is being deleted")
    above = find_controller(obj)
    if above is not None:
        owner = f"{above.get('kind')} {above.get('name')}"
        raise RefusedError(f"{workload} is controlled by {owner}, which would undo it")
    if condition := next((c for c in FINISHED if has_condition(obj, c)), None):
        raise RefusedError(f"{workload} is over: {condition}")
    if get_path(obj, "spec", "managedBy") == MULTIKUEUE:
        raise RefusedError(f"{workload} is a copy: MultiKueue manages it in another cluster")
    return workload


def list_freed_pods(workload: LiveWorkload, cluster: ClusterReader) -> tuple[FreedPod, ...]:
    """Return the pods that a stop of the object removes; pending pods hold no GPU."""
    return to_freed_pods([p for p in cluster.pods(workload.target) if not has_ended(p)], cluster)


def to_freed_pods(pods: Sequence[Object], cluster: ClusterReader) -> tuple[FreedPod, ...]:
    """Return pods with their GPUs, in the form in which an intent lists what its writes free."""
    gpus = count_allocated_gpus(pods, cluster)
    return tuple(
        FreedPod(
            get_namespace(p), name(p), get_uid(p), get_path(p, "spec", "nodeName"), gpus[get_uid(p)]
        )
        for p in pods
    )


def build_intent(
    workload: LiveWorkload,
    cluster: ClusterReader,
    capability: str,
    writes: tuple[UndoableChange, ...],
    notes: tuple[str, ...] = (),
) -> Intent:
    """Return the intent of writes in order, undone in the reverse order."""
    verb = read_verbs().get(workload.kind.kind)
    return Intent(
        target=workload.target,
        capability=capability,
        changes=tuple(w.change for w in writes),
        undo=tuple(w.undo for w in reversed(writes)),
        frees=list_freed_pods(workload, cluster),
        lost=verb.lost if verb else "",
        notes=(*((verb.caution,) if verb and verb.caution else ()), *notes),
    )


def get_plural(kind: str) -> str:
    """Return the plural resource of a kind: every kind here has a regular one."""
    return read_kinds()[kind].api_kind.lower() + "s"


def build_rights(
    *names: str, part: str = "", verbs: tuple[str, ...] = ("patch",)
) -> tuple[Right, ...]:
    """Return the rights to read kinds and to write them, or only a part of them."""
    needed: list[Right] = []
    for kind_name in names:
        kind = read_kinds()[kind_name]
        resource = get_plural(kind_name)
        if not part:
            needed.append(Right(kind.group, resource, ("get", *verbs)))
            continue
        needed.append(Right(kind.group, resource, ("get",)))
        needed.append(Right(kind.group, f"{resource}/{part}", verbs))
    return tuple(needed)


POD_RIGHTS = (Right("", "pods", ("get", "list")), CLAIMS)
"""The rights that every executor needs to see which pods are removed, and what they hold."""
