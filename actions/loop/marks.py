"""Compare the journal with what actions left in the cluster: annotations on objects, and the Lease.

A journal that was restored from a backup, or cut, lacks actions that the cluster shows. It is
outdated until `fallow reconcile` has named them; then `fallow thaw` is accepted.
"""

from collections.abc import Iterable

import msgspec

from actions.journal import JournalState, event_types
from actions.loop.annotate import ANNOTATION_KEYS
from actions.loop.lease import ANCHOR_KEY
from actions.loop.protocols import ClusterClient
from actions.reclaim.kinds import read_kinds
from fallow.errors import RefusedError
from fallow.settings.actions import LeaseSettings

ACTION_KEY, ACTED_AT_KEY = ANNOTATION_KEYS[:2]


class Mark(msgspec.Struct, frozen=True):
    """An object whose annotation names an action, and when it was acted upon."""

    action: str
    kind: str
    namespace: str
    name: str
    at: str


class MarkList(msgspec.Struct, frozen=True):
    """The marks of a cluster, and the kinds that may not be listed."""

    marks: tuple[Mark, ...]
    unread: tuple[str, ...]


class MarkReconciliation(msgspec.Struct, frozen=True):
    """What the cluster shows and the journal lacks."""

    missing: tuple[Mark, ...]
    lease: str
    """Why the journal is not the one of the Lease; empty: it is."""


def list_marks(cluster: ClusterClient) -> MarkList:
    """Return the marks on the objects of every kind that actions change and that is served.

    Raises:
        TemporaryError: no answer.
    """
    marks: list[Mark] = []
    unread: list[str] = []
    groups = {(kind.api_kind, kind.group) for kind in read_kinds().values() if kind.switch != "hub"}
    for kind, group in sorted({*groups, ("Node", "")}):
        path = cluster.collection(kind, group)
        if path is None:
            continue
        try:
            objects = cluster.items(path)
        except RefusedError:
            unread.append(kind)
            continue
        for obj in objects:
            meta = obj.get("metadata") or {}
            notes = meta.get("annotations") or {}
            if action := notes.get(ACTION_KEY):
                marks.append(
                    Mark(
                        str(action),
                        kind,
                        str(meta.get("namespace") or ""),
                        str(meta.get("name")),
                        str(notes.get(ACTED_AT_KEY) or ""),
                    )
                )
    return MarkList(tuple(marks), tuple(unread))


def find_unknown(record: JournalState, marks: Iterable[Mark]) -> tuple[Mark, ...]:
    """Return the marks of actions that neither the journal nor a reconciliation names."""
    return tuple(m for m in marks if not record.knows(m.action))


def reconcile_marks(
    record: JournalState, cluster: ClusterClient, lease: LeaseSettings
) -> MarkReconciliation:
    """Journal which actions the cluster shows and the journal lacks; return them.

    Raises:
        RefusedError: a kind may not be listed: its marks are unknown.
        TemporaryError: no answer.
    """
    record.catch_up()
    listed = list_marks(cluster)
    if listed.unread:
        raise RefusedError(
            f"marks cannot be read: {', '.join(listed.unread)} may not be listed",
            hint="run `fallow reconcile` with rights to list them in the whole cluster",
        )
    path = f"/apis/coordination.k8s.io/v1/namespaces/{lease.namespace}/leases/{lease.name}"
    anchor = read_anchor(cluster.get(path))
    missing = find_unknown(record, listed.marks)
    result = MarkReconciliation(missing, record.explain_lag(anchor) or "")
    document = {"lease": anchor, "missing": missing}
    record.append(event_types.RECONCILED, event_types.FLEET, document)
    return result


def read_anchor(lease: object) -> str:
    """Return the end of the journal that a Lease names; empty: none."""
    meta = lease.get("metadata") if isinstance(lease, dict) else None
    notes = (meta or {}).get("annotations") or {}
    return str(notes.get(ANCHOR_KEY) or "")
