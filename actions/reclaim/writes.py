"""Build a write and the write that undoes it, from the object's current state.

The undo restores only what the write changed: a field that was absent is removed again, with any
map that the write had to add. The undo is valid only while the written values are still there; the
loop compares them first.
"""

from typing import Any

import msgspec

from actions.cluster.pointers import (
    build_merge_patch,
    find_highest_absent,
    get_value,
    resolve_pointer,
)
from fallow.action_models import Change, Target
from fallow.kube.objects import Object


class UndoableChange(msgspec.Struct, frozen=True):
    """A change and its undo."""

    change: Change
    undo: Change


def set_field(obj: Object, target: Target, path: str, pointer: str, value: Any) -> UndoableChange:
    """Return the merge patch that sets one field, and its undo."""
    absent_pointer = find_highest_absent(obj, pointer)
    body = build_merge_patch(pointer, value)
    was, becomes = (
        {absent_pointer: get_value(obj, absent_pointer)},
        {absent_pointer: resolve_pointer(body, absent_pointer)},
    )
    change = Change(target, "PATCH", path, body, was=was, becomes=becomes)
    return UndoableChange(
        change, _build_undo(change, build_merge_patch(absent_pointer, was[absent_pointer]))
    )


def join_writes(first: UndoableChange, *others: UndoableChange) -> UndoableChange:
    """Return one merge patch of several fields of one object, and its undo.

    With a single write no controller can change the version between the parts.
    """
    change, undo = first.change, first.undo
    for other in others:
        change, undo = _join_changes(change, other.change), _join_changes(undo, other.undo)
    return UndoableChange(change, undo)


def _join_changes(change: Change, other: Change) -> Change:
    return msgspec.structs.replace(
        change,
        body=merge_bodies(change.body, other.body),
        was={**change.was, **other.was},
        becomes={**change.becomes, **other.becomes},
    )


def merge_bodies(body: Any, other: Any) -> Any:
    """Return one merge patch of two."""
    if not (isinstance(body, dict) and isinstance(other, dict)):
        return other
    return {**body, **{k: merge_bodies(body.get(k), v) for k, v in other.items()}}


def set_replicas(obj: Object, target: Target, path: str, value: int) -> UndoableChange:
    """Return the write of the scale subresource, and its undo.

    An object without replicas in its spec has no Scale (the server answers 500), so its own field
    is written, and removed again by the undo.
    """
    pointer = "/spec/replicas"
    was = get_value(obj, pointer)
    if was is None:
        return set_field(obj, target, path, pointer, value)
    change = Change(
        target,
        "PATCH",
        f"{path}/scale",
        build_merge_patch(pointer, value),
        read=path,
        was={pointer: was},
        becomes={pointer: value},
    )
    return UndoableChange(change, _build_undo(change, build_merge_patch(pointer, was)))


def _build_undo(change: Change, body: dict[str, Any]) -> Change:
    """Return the undo of a patch, without a version: that will have changed by then."""
    target = msgspec.structs.replace(change.target, resource_version=None, generation=None)
    return msgspec.structs.replace(
        change, target=target, body=body, was=change.becomes, becomes=change.was
    )
