"""A write and the write that undoes it, made from the object as it is.

The undo puts back just what the write touched: what was absent is taken away again, with
whatever map the write had to bring along. It holds only while what the write left is still
there; the loop compares before it undoes.
"""

from typing import Any

import msgspec

from actions.cluster.objects import Object
from actions.cluster.pointers import (
    build_merge_patch,
    find_highest_absent,
    get_value,
    resolve_pointer,
)
from fallow.action_models import Change, Target


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

    One write has no version between its parts that a controller could make old.
    """
    change, undo = first.change, first.undo
    for other in others:
        change, undo = _join_changes(change, other.change), _join_changes(undo, other.undo)
    return UndoableChange(change, undo)


def _join_changes(change: Change, other: Change) -> Change:
    return msgspec.structs.replace(
        change,
        body=_merge_bodies(change.body, other.body),
        was={**change.was, **other.was},
        becomes={**change.becomes, **other.becomes},
    )


def _merge_bodies(body: Any, other: Any) -> Any:
    if not (isinstance(body, dict) and isinstance(other, dict)):
        return other
    return {**body, **{k: _merge_bodies(body.get(k), v) for k, v in other.items()}}


def set_replicas(obj: Object, target: Target, path: str, value: int) -> UndoableChange:
    """Return the write of the scale subresource, and its undo.

    An object that does not say its replicas has no Scale (the server answers 500), so its own
    field is written, and taken away again.
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
    """Undo a patch: at another time, so the version is whatever it is by then."""
    target = msgspec.structs.replace(change.target, resource_version=None, generation=None)
    return msgspec.structs.replace(
        change, target=target, body=body, was=change.becomes, becomes=change.was
    )
