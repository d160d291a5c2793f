"""Read how far a kubelet applied an in-place resize: the spec requests, the status reports."""

from typing import Literal

import msgspec

from actions.cluster.pointers import get_value, split_pointer
from fallow.action_models import Change
from fallow.kube.objects import Object, get_path, has_ended
from fallow.kube.quantities import is_same_value

RESIZE = "/resize"
PENDING, IN_PROGRESS = "PodResizePending", "PodResizeInProgress"
INFEASIBLE, ERROR = "Infeasible", "Error"


class ResizeStatus(msgspec.Struct, frozen=True):
    """The state of a resize.

    The states are: applied, waiting (deferred, in progress, not reported), and impossible.
    """

    state: Literal["applied", "waiting", "impossible"]
    why: str = ""


def read_resize_status(change: Change, pod: Object) -> ResizeStatus | None:
    """Return how far the kubelet is with a resize in the spec; None = the change is no resize.

    The pod's conditions `PodResizePending` (Infeasible, Deferred) and `PodResizeInProgress` name
    the reason for a delay. Without them, the amounts of `status.containerStatuses[].resources` must
    equal those of the change. A status without amounts proves nothing.
    """
    if not change.path.endswith(RESIZE):
        return None
    if has_ended(pod):
        return ResizeStatus("applied")
    for condition in get_path(pod, "status", "conditions") or ():
        kind, reason = condition.get("type"), condition.get("reason")
        if kind not in (PENDING, IN_PROGRESS) or condition.get("status") != "True":
            continue
        text = f"{kind} {reason or ''}".strip()
        text_with_message = f"{text}: {condition['message']}" if condition.get("message") else text
        return ResizeStatus("impossible" if reason == INFEASIBLE else "waiting", text_with_message)
    for pointer, amount in change.becomes.items():
        actual = _read_actual(pod, pointer)
        if actual is None:
            return ResizeStatus("waiting", "the kubelet does not say what its container has")
        if not is_same_value(actual, amount):
            *_, side, resource = split_pointer(pointer)
            return ResizeStatus("waiting", f"its container has {side} of {actual} {resource} still")
    return ResizeStatus("applied")


def _read_actual(pod: Object, pointer: str) -> str | None:
    """Return a container's actual amounts, by the pointer of its spec."""
    _, _, index, _, side, resource = split_pointer(pointer)
    container = get_value(pod, f"/spec/containers/{index}/name")
    for status in get_path(pod, "status", "containerStatuses") or ():
        if status.get("name") == container:
            amount = get_path(status, "resources", side, resource)
            return None if amount is None else str(amount)
    return None
