"""Compare an object with the state before and after a change; find who wrote a field."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

import msgspec

from actions.cluster.pointers import get_value, split_pointer
from fallow.action_models import Change
from fallow.kube.quantities import is_same_value

ObjectState = Literal["was", "becomes", "neither", "gone", "other", "unsaid"]
"""was: as before the change. becomes: as after it. neither: somebody wrote something else. gone: no
such object. other: an object of that name with another uid. unsaid: the change names nothing
that could be compared."""
MANAGER = "fallow"
EVICTION = "/eviction"
METADATA = "/metadata/"
NAME, UID = "/metadata/name", "/metadata/uid"
Object = Mapping[str, Any]


def compare_object(change: Change, obj: Object | None) -> ObjectState:
    """Return the state of an object relative to a change."""
    if not change.becomes:
        return "unsaid"
    is_creation = change.method == "POST"
    if obj is not None and not is_creation and _is_another_object(change, obj):
        return "other"
    if obj is None:
        return _compare_absent(change)
    # An object that is created again is still the old one until it is gone.
    is_old = is_recreation(change) and get_value(obj, UID) == change.target.uid
    if not is_old and not find_differences(change.becomes, obj):
        return "becomes"
    if is_old or not find_differences(change.was, obj):
        return "was"
    # A pod of that name with another uid: the pod to evict is gone.
    return "becomes" if _is_eviction(change) else "neither"


def is_recreation(change: Change) -> bool:
    """Return whether a change creates its object again, which bears another uid then."""
    return change.method == "POST" and NAME in change.becomes and bool(change.target.uid)


def is_pending(change: Change, object_state: ObjectState) -> bool:
    """Return whether the effect of an answered change may still be pending.

    The effect of a POST (an eviction, a command to an operator) comes some time later.
    """
    return change.method == "POST" and object_state == "was"


def find_differences(values: Mapping[str, Any], obj: Object) -> list[str]:
    """Return the pointers whose values differ from those given."""
    return [p for p, value in values.items() if not _is_same_field(p, get_value(obj, p), value)]


def find_final_changes(
    changes: Sequence[Change], numbers: Iterable[int] | None = None
) -> list[Change]:
    """Return the changes (of some numbers) with the values that they leave in the end.

    If several changes write a pointer of one object, only the last value is compared. An earlier
    value is gone, and nobody reversed it.
    """
    indexes = sorted(range(len(changes)) if numbers is None else numbers)
    return _list_unique_pointers(changes, reversed(indexes))[::-1]


def find_first_changes(changes: Sequence[Change]) -> list[Change]:
    """Return the changes with the values that the first of them expects and leaves."""
    return _list_unique_pointers(changes, range(len(changes)))


def _list_unique_pointers(changes: Sequence[Change], order: Iterable[int]) -> list[Change]:
    """Return changes, in an order, each with the pointers that none before it writes."""
    written: set[tuple[str, str, str]] = set()
    unique = []
    for number in order:
        change = changes[number]
        object_path = change.client, get_read_path(change)
        values = {p: v for p, v in change.becomes.items() if (*object_path, p) not in written}
        written |= {(*object_path, p) for p in values}
        if values:
            was = {p: v for p, v in change.was.items() if p in values}
            unique.append(msgspec.structs.replace(change, was=was, becomes=values))
    return unique


def find_last_writer(obj: Object, pointers: list[str]) -> tuple[str, datetime | None] | None:
    """Return the other field manager that wrote any of these last, and when; None = unknown.

    A manager that removed a field owns it no more. Then the result is the last manager that wrote
    the object (not its status) after us.
    """
    owners: list[tuple[str, datetime | None]] = []
    others: list[tuple[str, datetime | None]] = []
    entries = obj.get("metadata", {}).get("managedFields") or ()
    own_times = [_parse_time(e.get("time")) for e in entries if e.get("manager") == MANAGER]
    since = max(filter(None, own_times), default=None)
    for entry in entries:
        manager = (str(entry.get("manager", "")), _parse_time(entry.get("time")))
        if manager[0] == MANAGER or entry.get("subresource") == "status":
            continue
        if since is None or manager[1] is None or manager[1] >= since:
            others.append(manager)
        if any(_is_path_owned(entry.get("fieldsV1") or {}, split_pointer(p)) for p in pointers):
            owners.append(manager)
    writers = owners or others
    return max(writers, key=lambda w: w[1].timestamp() if w[1] else 0.0, default=None)


def find_spec_writer(obj: Object, since: datetime) -> str | None:
    """Return the other manager that wrote the object's spec after a given time; None = none did."""
    for entry in obj.get("metadata", {}).get("managedFields") or ():
        written_at = _parse_time(entry.get("time"))
        if (
            entry.get("manager") != MANAGER
            and entry.get("subresource") != "status"
            and "f:spec" in (entry.get("fieldsV1") or {})
            and written_at is not None
            and written_at > since
        ):
            return str(entry.get("manager") or "somebody")
    return None


def set_current_version(change: Change, obj: Object | None) -> Change:
    """Return the change with the object's current version as its precondition."""
    meta = (obj or {}).get("metadata") or {}
    if not change.guarded or meta.get("uid") != change.target.uid:
        return change
    version = meta.get("resourceVersion")
    return msgspec.structs.replace(
        change, target=msgspec.structs.replace(change.target, resource_version=version)
    )


def get_read_path(change: Change) -> str:
    """Return the path whose object shows whether the change was applied."""
    return change.read or change.path


def _is_another_object(change: Change, obj: Object) -> bool:
    meta = obj.get("metadata") or {}
    is_same_name = meta.get("name") == change.target.name and obj.get("kind") in (
        change.target.kind,
        "Scale",
    )
    return bool(is_same_name and meta.get("uid") and meta["uid"] != change.target.uid)


def _compare_absent(change: Change) -> ObjectState:
    """Return the state of an absent object for a change: evicted, not created yet, or gone."""
    if all(value is None for value in change.becomes.values()):
        return "becomes"
    # A change that sets an absent field was sent to an object that existed.
    is_creation = change.method == "POST" and all(value is None for value in change.was.values())
    return "was" if is_creation else "gone"


def _is_eviction(change: Change) -> bool:
    return change.path.endswith(EVICTION)


def _is_same_field(pointer: str, left_value: Any, right_value: Any) -> bool:
    if pointer.endswith("eplicas"):  # the Scale object leaves out a value of 0
        return (left_value or 0) == (right_value or 0)
    if pointer.startswith(METADATA):  # labels and annotations are strings
        return bool(left_value == right_value)
    return is_same_value(
        left_value, right_value
    )  # the server rewrites quantities: 8192Mi becomes 8Gi


def _is_path_owned(fields: Mapping[str, Any], path: Sequence[str]) -> bool:
    """Return whether a set of managed fields contains a path.

    A list's items have their own keys.
    """
    node: Mapping[str, Any] = fields
    for part in path:
        inner = node.get(f"f:{part}")
        if inner is None:
            return part.isdecimal() and bool(node)
        if not inner:  # owned as a whole
            return True
        node = inner
    return True


def _parse_time(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None
