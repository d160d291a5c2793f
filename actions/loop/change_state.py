"""Compare an object with what a change found and what it leaves; say who wrote a field."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

import msgspec

from actions.cluster.pointers import get_value, split_pointer
from fallow.action_models import Change
from fallow.kube.quantities import is_same_value

ObjectState = Literal["was", "becomes", "neither", "gone", "other", "unsaid"]
"""was: as before the change. becomes: as after it. neither: somebody wrote something else.
gone: no such object. other: an object of that name with another uid. unsaid: the change names
nothing that could be compared."""
MANAGER = "fallow"
EVICTION = "/eviction"
METADATA = "/metadata/"
Object = Mapping[str, Any]


def compare_object(change: Change, obj: Object | None) -> ObjectState:
    """Return how an object stands to a change."""
    if not change.becomes:
        return "unsaid"
    is_creation = change.method == "POST"
    if obj is not None and not is_creation and _is_another_object(change, obj):
        return "other"
    if obj is None:
        return _compare_absent(change)
    if all(_is_same_field(p, get_value(obj, p), v) for p, v in change.becomes.items()):
        return "becomes"
    if all(_is_same_field(p, get_value(obj, p), v) for p, v in change.was.items()):
        return "was"
    # A pod of that name with another uid: the one that was to be evicted is gone.
    return "becomes" if _is_eviction(change) else "neither"


def is_pending(change: Change, object_state: ObjectState) -> bool:
    """Tell whether a change that was answered may still be on its way.

    What a POST asks for (an eviction, a command to an operator) happens a while later.
    """
    return change.method == "POST" and object_state == "was"


def find_differences(values: Mapping[str, Any], obj: Object) -> list[str]:
    """Return the pointers whose values are not those wanted."""
    return [p for p, value in values.items() if not _is_same_field(p, get_value(obj, p), value)]


def final_changes(changes: Sequence[Change], numbers: Iterable[int] | None = None) -> list[Change]:
    """Return the changes (of some numbers) as what they leave in the end.

    Of several that write a pointer of one object, only the last is to be seen there: what an
    earlier one left is gone, and nobody took it back.
    """
    indexes = sorted(range(len(changes)) if numbers is None else numbers)
    return _unique_pointers(changes, reversed(indexes))[::-1]


def first_changes(changes: Sequence[Change]) -> list[Change]:
    """Return the changes as what the first of them finds and leaves."""
    return _unique_pointers(changes, range(len(changes)))


def _unique_pointers(changes: Sequence[Change], order: Iterable[int]) -> list[Change]:
    """Return changes, in an order, each with the pointers that none before it writes."""
    written: set[tuple[str, str, str]] = set()
    unique = []
    for number in order:
        change = changes[number]
        object_path = change.door, get_read_path(change)
        values = {p: v for p, v in change.becomes.items() if (*object_path, p) not in written}
        written |= {(*object_path, p) for p in values}
        if values:
            was = {p: v for p, v in change.was.items() if p in values}
            unique.append(msgspec.structs.replace(change, was=was, becomes=values))
    return unique


def find_last_writer(obj: Object, pointers: list[str]) -> tuple[str, datetime | None] | None:
    """Return the field manager, not ours, that wrote any of these last, and when; None = unknown.

    A manager that took a field away owns it no more; then the last to write the object at all
    since we did, its status aside, is named.
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
        if any(_owns_path(entry.get("fieldsV1") or {}, split_pointer(p)) for p in pointers):
            owners.append(manager)
    writers = owners or others
    return max(writers, key=lambda w: w[1].timestamp() if w[1] else 0.0, default=None)


def find_spec_writer(obj: Object, since: datetime) -> str | None:
    """Return the manager, not ours, that wrote the object's spec after a moment; None = nobody."""
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


def with_current_version(change: Change, obj: Object | None) -> Change:
    """Return the change with the version that its object has now, for its precondition."""
    meta = (obj or {}).get("metadata") or {}
    if not change.guarded or meta.get("uid") != change.target.uid:
        return change
    version = meta.get("resourceVersion")
    return msgspec.structs.replace(
        change, target=msgspec.structs.replace(change.target, resource_version=version)
    )


def get_read_path(change: Change) -> str:
    """Return the path whose object shows whether the change took."""
    return change.read or change.path


def _is_another_object(change: Change, obj: Object) -> bool:
    meta = obj.get("metadata") or {}
    is_same_name = meta.get("name") == change.target.name and obj.get("kind") in (
        change.target.kind,
        "Scale",
    )
    return bool(is_same_name and meta.get("uid") and meta["uid"] != change.target.uid)


def _compare_absent(change: Change) -> ObjectState:
    """Return how no object at all stands to a change: evicted, not made yet, or gone."""
    if all(value is None for value in change.becomes.values()):
        return "becomes"
    # What sets a field that was absent was sent to an object: without it there is none.
    is_creation = change.method == "POST" and all(value is None for value in change.was.values())
    return "was" if is_creation else "gone"


def _is_eviction(change: Change) -> bool:
    return change.path.endswith(EVICTION)


def _is_same_field(pointer: str, left_value: Any, right_value: Any) -> bool:
    if pointer.endswith("eplicas"):  # the Scale object leaves out what is 0
        return (left_value or 0) == (right_value or 0)
    if pointer.startswith(METADATA):  # labels and annotations are texts, whatever they look like
        return bool(left_value == right_value)
    return is_same_value(
        left_value, right_value
    )  # the server rewrites quantities: 8192Mi comes back as 8Gi


def _owns_path(fields: Mapping[str, Any], path: Sequence[str]) -> bool:
    """Tell whether a set of managed fields holds a path; a list's items have keys of their own."""
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
