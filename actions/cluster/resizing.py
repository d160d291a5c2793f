"""What a kubelet made of an in-place resize: the spec says what was asked, the status what is."""

from typing import Literal

import msgspec

from actions.cluster.objects import Object, deep, ended
from actions.cluster.pointers import parts, shown
from fallow.acting import Change
from fallow.kube.quantities import same

RESIZE = "/resize"
PENDING, IN_PROGRESS = "PodResizePending", "PodResizeInProgress"
INFEASIBLE, ERROR = "Infeasible", "Error"


class Resize(msgspec.Struct, frozen=True):
    """How far a resize is: applied, waiting (deferred, in progress, not said), or impossible."""

    state: Literal["applied", "waiting", "impossible"]
    why: str = ""


def resize(change: Change, pod: Object) -> Resize | None:
    """Return how far the kubelet is with a resize that the spec shows; None = the change is none.

    The pod's conditions `PodResizePending` (Infeasible, Deferred) and `PodResizeInProgress` say
    what keeps it; without them the amounts of `status.containerStatuses[].resources` must be those
    of the change. A status that shows no amounts proves nothing.
    """
    if not change.path.endswith(RESIZE):
        return None
    if ended(pod):
        return Resize("applied")
    for condition in deep(pod, "status", "conditions") or ():
        kind, reason = condition.get("type"), condition.get("reason")
        if kind not in (PENDING, IN_PROGRESS) or condition.get("status") != "True":
            continue
        text = f"{kind} {reason or ''}".strip()
        said = f"{text}: {condition['message']}" if condition.get("message") else text
        return Resize("impossible" if reason == INFEASIBLE else "waiting", said)
    for pointer, wanted in change.becomes.items():
        actual = _actual(pod, pointer)
        if actual is None:
            return Resize("waiting", "the kubelet does not say what its container has")
        if not same(actual, wanted):
            *_, side, resource = parts(pointer)
            return Resize("waiting", f"its container has {side} of {actual} {resource} still")
    return Resize("applied")


def _actual(pod: Object, pointer: str) -> str | None:
    """Return what a container has, by the pointer of its spec."""
    _, _, index, _, side, resource = parts(pointer)
    container = shown(pod, f"/spec/containers/{index}/name")
    for status in deep(pod, "status", "containerStatuses") or ():
        if status.get("name") == container:
            found = deep(status, "resources", side, resource)
            return None if found is None else str(found)
    return None
