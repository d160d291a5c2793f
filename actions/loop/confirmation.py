"""Read an object again after a conflict: does the decision still hold?

A controller that writes its object's status all the time would otherwise win every race. A write is
sent again only while the object is what the decision read but for its status, and while everything
that judged the object judges the one read again in the same way.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from actions.cluster.cached_cluster import CachedCluster
from actions.cluster.pointers import MISSING, join_pointer
from actions.loop.change_state import find_last_writer
from fallow.action_models import Change, Intent, Reason
from fallow.errors import FallowError
from fallow.kube.objects import format_object
from fallow.protocols import ClusterReader

Object = Mapping[str, Any]
CONFLICT = "conflict"
_VOLATILE = frozenset({"managedFields", "resourceVersion", "generation"})
"""Metadata that a write of the status changes."""
# The items of a list bear no kind; a single object does.
_APART = frozenset({"status", "kind", "apiVersion"})


class Confirmation:
    """Confirms the decision behind an intent for objects of a newer version."""

    def __init__(
        self,
        intent: Intent,
        reads: CachedCluster,
        cluster: ClusterReader,
        decide_again: Callable[[CachedCluster], tuple[Intent, tuple[Reason, ...]]],
    ) -> None:
        self._intent, self._reads, self._cluster = intent, reads, cluster
        self._decide_again = decide_again
        self.objects: dict[str, Object] = {}
        """Objects by uid as they were last confirmed."""

    def renew(self, change: Change) -> Reason | None:
        """Read everything again; return why the change must not be sent, None = it may."""
        reads = CachedCluster(self._cluster)
        try:
            intent, reasons = self._decide_again(reads)
        except FallowError as error:
            return Reason(CONFLICT, error.message)
        if reasons:
            return reasons[0]
        latest = msgspec.structs.replace(change.target, resource_version=None)
        before, after = self._reads.find(change.target), reads.find(latest)
        if before is None or after is None:
            return Reason(CONFLICT, f"{change.target.kind} {change.target.name} was changed")
        if fields := list_changed_fields(before, after):
            writer = find_last_writer(after, fields)
            by = f" (field manager {writer[0]})" if writer and writer[0] else ""
            named = f"{format_object(after, change.target.kind)}: {', '.join(fields[:3])}"
            return Reason(CONFLICT, f"{named} changed after the decision read it{by}")
        if _list_effects(intent) != _list_effects(self._intent):
            return Reason(CONFLICT, "read again, other writes would carry the decision out")
        self.objects[change.target.uid] = after
        return None


def list_changed_fields(before: Object, after: Object) -> list[str]:
    """Return the pointers in which two versions of an object differ beside their status."""
    versions = [
        {
            **{key: value for key, value in obj.items() if key not in _APART},
            "metadata": {k: v for k, v in obj["metadata"].items() if k not in _VOLATILE},
        }
        for obj in (before, after)
    ]
    return sorted(_list_differences("", *versions))


def _list_differences(pointer: str, before: Any, after: Any) -> Iterator[str]:
    maps = [value if isinstance(value, Mapping) else {} for value in (before, after)]
    if (
        before != after
        and {*maps[0], *maps[1]}
        and all(value is MISSING or isinstance(value, Mapping) for value in (before, after))
    ):
        for key in {*maps[0], *maps[1]}:
            values = [value.get(key, MISSING) for value in maps]
            yield from _list_differences(pointer + join_pointer(key), *values)
    elif before != after:
        yield pointer


def _list_effects(intent: Intent) -> list[tuple[Any, ...]]:
    # A value may hold the time at which it was written; the pointers that are written do not.
    return [(c.method, c.path, c.was, [*c.becomes], c.after) for c in intent.changes]
