"""Restore the contents of a snapshot once the pods of an undone action run again."""

from datetime import timedelta
from typing import Any

import msgspec

from actions.journal import ActionState, event_types
from actions.loop.context import ActionContext
from actions.loop.protocols import SnapshotTaker
from actions.snapshots.models import Snapshot
from fallow.errors import FallowError

MAX_WAIT = timedelta(hours=1)
"""Maximum time from an undo to running pods; after it the snapshot stays in the store."""
RUNNING = "Running"


def restore_snapshots(context: ActionContext, snapshotter: SnapshotTaker) -> list[str]:
    """Restore the snapshots of undone actions; return what could not be restored."""
    failures = []
    for state in context.record.list_unrestored():
        outcome = state.outcome
        since = outcome.at if outcome is not None else state.action.at
        late = context.elapsed(since) > MAX_WAIT
        try:
            document = _restore_snapshot(context, state, snapshotter)
        except FallowError as error:
            document = {"failed": [error.message]} if late else None
        if document is None and late:
            document = {"failed": ["none of its pods runs: the snapshot stays where it is"]}
        if document is None:
            continue
        context.record.append(event_types.SNAPSHOT_RESTORED, state.action.id, document)
        failures += [f"action {state.action.id}: {why}" for why in document["failed"]]
    return failures


def _restore_snapshot(
    context: ActionContext, state: ActionState, snapshotter: SnapshotTaker
) -> dict[str, Any] | None:
    """Restore one snapshot; None = its pods do not run yet."""
    document = context.record.read_snapshot(state)
    if document is None:
        return {"failed": [f"the journal has no snapshot {state.action.snapshot}"]}
    target = state.action.intent.target
    pods = context.cluster.pods(target)
    if not pods or any((p.get("status") or {}).get("phase") != RUNNING for p in pods):
        return None
    parts = snapshotter.restore(msgspec.convert(document, Snapshot, strict=False), target)
    return {
        "parts": [{"key": r.part.key, "result": r.result, "why": r.why} for r in parts],
        "failed": [f"{r.part.key}: {r.why}" for r in parts if r.result == "failed"],
    }
