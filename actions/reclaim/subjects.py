"""Find what a decision is about, as it is now, and refuse what must not be touched."""

from collections.abc import Sequence

import msgspec

from actions.cluster.allocations import CLAIMS, allocated_gpus
from actions.cluster.objects import (
    Object,
    controller,
    deep,
    ended,
    going,
    holds,
    name,
    namespace,
    target,
    uid,
)
from actions.reclaim.kinds import Kind, kinds
from actions.reclaim.writes import Writes
from actions.recommend import verbs
from fallow.acting import Decision, Held, Intent, Target
from fallow.errors import RefusedError
from fallow.seams import Cluster, Right

FINISHED = ("Complete", "Completed", "Succeeded", "Failed", "Finished")
"""Conditions of work that is over, as Job, JobSet, TrainJob and the training operator say it."""
MULTIKUEUE = "kueue.x-k8s.io/multikueue"


class Subject(msgspec.Struct, frozen=True):
    """An object to act upon: what it is, what it says now, and where it lies."""

    kind: Kind
    obj: Object
    path: str
    target: Target

    @property
    def later(self) -> Target:
        """The target for a write at another time: the version is whatever it is by then."""
        return msgspec.structs.replace(self.target, resource_version=None, generation=None)

    def __str__(self) -> str:
        return f"{self.kind.kind}/{self.target.namespace}/{self.target.name}"


def subject(decision: Decision, cluster: Cluster) -> Subject:
    """Return the object of a decision as it is now.

    Raises:
        RefusedError: it is gone, another's, on its way out, done, or somebody above controls it.
        TemporaryError: the API does not answer.
    """
    of, kind_name, space, called = decision.subject
    if of != cluster.name:
        raise RefusedError(f"{kind_name}/{space}/{called} is in cluster {of}, not {cluster.name}")
    kind = kinds()[kind_name]
    path = cluster.collection(kind.api_kind, kind.group, space)
    if path is None:
        raise RefusedError(f"{cluster.name} serves no {kind.kind} of {kind.group or 'the core'}")
    obj = cluster.get(f"{path}/{called}")
    if obj is None:
        raise RefusedError(f"{kind_name}/{space}/{called} is gone")
    found = Subject(kind, obj, f"{path}/{called}", target(obj, cluster.name))
    if decision.uid and uid(obj) != decision.uid:
        raise RefusedError(f"{found} is another object of that name: its uid is {uid(obj)}")
    if going(obj):
        raise RefusedError(f"{found} is being deleted")
    above = controller(obj)
    if above is not None:
        owner = f"{above.get('kind')} {above.get('name')}"
        raise RefusedError(f"{found} is controlled by {owner}, which would undo it")
    if done := next((c for c in FINISHED if holds(obj, c)), None):
        raise RefusedError(f"{found} is over: {done}")
    if deep(obj, "spec", "managedBy") == MULTIKUEUE:
        raise RefusedError(f"{found} is a copy: MultiKueue manages it in another cluster")
    return found


def held(found: Subject, cluster: Cluster) -> tuple[Held, ...]:
    """Return the pods that should be gone once the object is stopped; waiting ones hold no GPU."""
    return freed([p for p in cluster.pods(found.target) if not ended(p)], cluster)


def freed(pods: Sequence[Object], cluster: Cluster) -> tuple[Held, ...]:
    """Return pods with what they hold, as an intent says what its writes free."""
    gpus = allocated_gpus(pods, cluster)
    return tuple(
        Held(namespace(p), name(p), uid(p), deep(p, "spec", "nodeName"), gpus[uid(p)]) for p in pods
    )


def intent(
    found: Subject,
    cluster: Cluster,
    capability: str,
    writes: tuple[Writes, ...],
    notes: tuple[str, ...] = (),
) -> Intent:
    """Return the intent of writes in order, undone in the reverse order."""
    words = verbs().get(found.kind.kind)
    return Intent(
        target=found.target,
        capability=capability,
        changes=tuple(w.change for w in writes),
        undo=tuple(w.undo for w in reversed(writes)),
        frees=held(found, cluster),
        lost=words.lost if words else "",
        notes=(*((words.caution,) if words and words.caution else ()), *notes),
    )


def plural(kind: str) -> str:
    """Return the resource of a kind: every kind here has a regular one."""
    return kinds()[kind].api_kind.lower() + "s"


def rights(*names: str, part: str = "", verbs: tuple[str, ...] = ("patch",)) -> tuple[Right, ...]:
    """Return what it takes to read kinds and to write them, or only a part of them."""
    found: list[Right] = []
    for one in names:
        kind = kinds()[one]
        resource = plural(one)
        if not part:
            found.append(Right(kind.group, resource, ("get", *verbs)))
            continue
        found.append(Right(kind.group, resource, ("get",)))
        found.append(Right(kind.group, f"{resource}/{part}", verbs))
    return tuple(found)


LOOK = (Right("", "pods", ("get", "list")), CLAIMS)
"""What every executor needs to see which pods go, and what they hold."""
