"""Build one JSON patch of an object's fields, and the patch that undoes it."""

from collections.abc import Sequence
from typing import Any

import msgspec

from actions.quota.systems.system import FieldChange
from fallow.action_models import Change, Target

JSON_PATCH = "application/json-patch+json"
UID = "/metadata/uid"


def build_patches(
    target: Target, path: str, fields: Sequence[FieldChange], *, depends: bool = False
) -> tuple[Change, Change]:
    """Return the change and its undo.

    Every field is tested for its old value before anything is written. The uid is tested too, but
    not the resourceVersion: each admitted pod writes a queue's status, which does not matter here.
    A failed test is 422: the sum would change, so a new decision is needed.
    """
    undo_fields = [FieldChange(f.pointer, f.after, f.before) for f in fields]
    later = msgspec.structs.replace(target, resource_version=None)
    return _change(target, path, fields, depends=depends), _change(
        later, path, undo_fields, depends=True
    )


def _change(target: Target, path: str, fields: Sequence[FieldChange], *, depends: bool) -> Change:
    tests: list[dict[str, Any]] = [{"op": "test", "path": UID, "value": target.uid}]
    tests += [
        {"op": "test", "path": f.pointer, "value": f.before} for f in fields if f.before is not None
    ]
    return Change(
        target,
        "PATCH",
        path,
        [*tests, *(_build_operation(f) for f in fields if f.before != f.after)],
        JSON_PATCH,
        was={f.pointer: f.before for f in fields},
        becomes={f.pointer: f.after for f in fields},
        guarded=False,
        depends=depends,
    )


def _build_operation(field: FieldChange) -> dict[str, Any]:
    if field.after is None:
        return {"op": "remove", "path": field.pointer}
    verb = "add" if field.before is None else "replace"
    return {"op": verb, "path": field.pointer, "value": field.after}
