"""Compare an object with what a change found and what it leaves; say who wrote a field."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

import msgspec

from actions.cluster.pointers import parts, shown
from fallow.acting import Change
from fallow.kube.quantities import same

State = Literal["was", "becomes", "neither", "gone", "other", "unsaid"]
"""was: as before the change. becomes: as after it. neither: somebody wrote something else.
gone: no such object. other: an object of that name with another uid. unsaid: the change names
nothing that could be compared."""
MANAGER = "fallow"
EVICTION = "/eviction"
METADATA = "/metadata/"
Object = Mapping[str, Any]


def state(change: Change, found: Object | None) -> State:
    """Return how an object stands to a change."""
    if not change.becomes:
        return "unsaid"
    posted = change.method == "POST"
    if found is not None and not posted and _another(change, found):
        return "other"
    if found is None:
        return _absent(change)
    if all(_same(p, shown(found, p), v) for p, v in change.becomes.items()):
        return "becomes"
    if all(_same(p, shown(found, p), v) for p, v in change.was.items()):
        return "was"
    # A pod of that name with another uid: the one that was to be evicted is gone.
    return "becomes" if _evicts(change) else "neither"


def pending(change: Change, how: State) -> bool:
    """Tell whether a change that was answered may still be on its way.

    What a POST asks for (an eviction, a command to an operator) happens a while later.
    """
    return change.method == "POST" and how == "was"


def differing(wanted: Mapping[str, Any], found: Object) -> list[str]:
    """Return the pointers whose values are not those wanted."""
    return [p for p, value in wanted.items() if not _same(p, shown(found, p), value)]


def standing(changes: Sequence[Change], numbers: Iterable[int] | None = None) -> list[Change]:
    """Return the changes (of some numbers) as what they leave in the end.

    Of several that write a pointer of one object, only the last is to be seen there: what an
    earlier one left is gone, and nobody took it back.
    """
    asked = sorted(range(len(changes)) if numbers is None else numbers)
    return _once(changes, reversed(asked))[::-1]


def begun(changes: Sequence[Change]) -> list[Change]:
    """Return the changes as what the first of them finds and leaves."""
    return _once(changes, range(len(changes)))


def _once(changes: Sequence[Change], order: Iterable[int]) -> list[Change]:
    """Return changes, in an order, each with the pointers that none before it writes."""
    seen: set[tuple[str, str, str]] = set()
    found = []
    for number in order:
        change = changes[number]
        where = change.door, read_path(change)
        mine = {p: v for p, v in change.becomes.items() if (*where, p) not in seen}
        seen |= {(*where, p) for p in mine}
        if mine:
            was = {p: v for p, v in change.was.items() if p in mine}
            found.append(msgspec.structs.replace(change, was=was, becomes=mine))
    return found


def writer(found: Object, pointers: list[str]) -> tuple[str, datetime | None] | None:
    """Return the field manager, not ours, that wrote any of these last, and when; None = unknown.

    A manager that took a field away owns it no more; then the last to write the object at all
    since we did, its status aside, is named.
    """
    owners: list[tuple[str, datetime | None]] = []
    others: list[tuple[str, datetime | None]] = []
    entries = found.get("metadata", {}).get("managedFields") or ()
    ours = [_moment(e.get("time")) for e in entries if e.get("manager") == MANAGER]
    since = max(filter(None, ours), default=None)
    for entry in entries:
        who = (str(entry.get("manager", "")), _moment(entry.get("time")))
        if who[0] == MANAGER or entry.get("subresource") == "status":
            continue
        if since is None or who[1] is None or who[1] >= since:
            others.append(who)
        if any(_owns(entry.get("fieldsV1") or {}, parts(p)) for p in pointers):
            owners.append(who)
    found_ones = owners or others
    return max(found_ones, key=lambda w: w[1].timestamp() if w[1] else 0.0, default=None)


def spec_written(found: Object, since: datetime) -> str | None:
    """Return the manager, not ours, that wrote the object's spec after a moment; None = nobody."""
    for entry in found.get("metadata", {}).get("managedFields") or ():
        when = _moment(entry.get("time"))
        if (
            entry.get("manager") != MANAGER
            and entry.get("subresource") != "status"
            and "f:spec" in (entry.get("fieldsV1") or {})
            and when is not None
            and when > since
        ):
            return str(entry.get("manager") or "somebody")
    return None


def fresh(change: Change, found: Object | None) -> Change:
    """Return the change with the version that its object has now, for its precondition."""
    meta = (found or {}).get("metadata") or {}
    if not change.guarded or meta.get("uid") != change.target.uid:
        return change
    version = meta.get("resourceVersion")
    return msgspec.structs.replace(
        change, target=msgspec.structs.replace(change.target, resource_version=version)
    )


def read_path(change: Change) -> str:
    """Return the path whose object shows whether the change took."""
    return change.read or change.path


def _another(change: Change, found: Object) -> bool:
    meta = found.get("metadata") or {}
    mine = meta.get("name") == change.target.name and found.get("kind") in (
        change.target.kind,
        "Scale",
    )
    return bool(mine and meta.get("uid") and meta["uid"] != change.target.uid)


def _absent(change: Change) -> State:
    """Return how no object at all stands to a change: evicted, not made yet, or gone."""
    if all(value is None for value in change.becomes.values()):
        return "becomes"
    # What sets a field that was absent was sent to an object: without it there is none.
    made = change.method == "POST" and all(value is None for value in change.was.values())
    return "was" if made else "gone"


def _evicts(change: Change) -> bool:
    return change.path.endswith(EVICTION)


def _same(pointer: str, one: Any, other: Any) -> bool:
    if pointer.endswith("eplicas"):  # the Scale object leaves out what is 0
        return (one or 0) == (other or 0)
    if pointer.startswith(METADATA):  # labels and annotations are texts, whatever they look like
        return bool(one == other)
    return same(one, other)  # the server rewrites quantities: 8192Mi comes back as 8Gi


def _owns(fields: Mapping[str, Any], path: Sequence[str]) -> bool:
    """Tell whether a set of managed fields holds a path; a list's items have keys of their own."""
    here: Mapping[str, Any] = fields
    for part in path:
        inner = here.get(f"f:{part}")
        if inner is None:
            return part.isdecimal() and bool(here)
        if not inner:  # owned as a whole
            return True
        here = inner
    return True


def _moment(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None
