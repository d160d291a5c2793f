"""A write and the write that undoes it, made from the object as it is.

The undo puts back just what the write touched: what was absent is taken away again, with
whatever map the write had to bring along. It holds only while what the write left is still
there; the loop compares before it undoes.
"""

from typing import Any

import msgspec

from actions.cluster.objects import Object
from actions.cluster.pointers import at, highest_absent, merge, shown
from fallow.acting import Change, Target


class Writes(msgspec.Struct, frozen=True):
    """A change and its undo."""

    change: Change
    undo: Change


def field(obj: Object, target: Target, path: str, pointer: str, value: Any) -> Writes:
    """Return the merge patch that sets one field, and its undo."""
    place = highest_absent(obj, pointer)
    body = merge(pointer, value)
    was, becomes = {place: shown(obj, place)}, {place: at(body, place)}
    change = Change(target, "PATCH", path, body, was=was, becomes=becomes)
    return Writes(change, _undone(change, merge(place, was[place])))


def joined(first: Writes, *others: Writes) -> Writes:
    """Return one merge patch of several fields of one object, and its undo.

    One write has no version between its parts that a controller could make old.
    """
    change, undo = first.change, first.undo
    for other in others:
        change, undo = _both(change, other.change), _both(undo, other.undo)
    return Writes(change, undo)


def _both(one: Change, other: Change) -> Change:
    return msgspec.structs.replace(
        one,
        body=_merged(one.body, other.body),
        was={**one.was, **other.was},
        becomes={**one.becomes, **other.becomes},
    )


def _merged(one: Any, other: Any) -> Any:
    if not (isinstance(one, dict) and isinstance(other, dict)):
        return other
    return {**one, **{k: _merged(one.get(k), v) for k, v in other.items()}}


def replicas(obj: Object, target: Target, path: str, value: int) -> Writes:
    """Return the write of the scale subresource, and its undo.

    An object that does not say its replicas has no Scale (the server answers 500), so its own
    field is written, and taken away again.
    """
    pointer = "/spec/replicas"
    was = shown(obj, pointer)
    if was is None:
        return field(obj, target, path, pointer, value)
    change = Change(
        target,
        "PATCH",
        f"{path}/scale",
        merge(pointer, value),
        read=path,
        was={pointer: was},
        becomes={pointer: value},
    )
    return Writes(change, _undone(change, merge(pointer, was)))


def _undone(change: Change, body: dict[str, Any]) -> Change:
    """Undo a patch: at another time, so the version is whatever it is by then."""
    target = msgspec.structs.replace(change.target, resource_version=None, generation=None)
    return msgspec.structs.replace(
        change, target=target, body=body, was=change.becomes, becomes=change.was
    )
