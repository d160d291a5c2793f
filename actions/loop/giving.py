"""Give back what a snapshot kept, once the pods of an undone action run again."""

from datetime import timedelta
from typing import Any

import msgspec

from actions.journal import Told, words
from actions.loop.kit import Kit
from actions.loop.seams import Snapshotter
from fallow.errors import FallowError

PATIENCE = timedelta(hours=1)
"""Pods that do not run for so long after an undo: what was kept stays in the store."""
RUNNING = "Running"


def give_back(kit: Kit, snapshotter: Snapshotter) -> list[str]:
    """Restore the snapshots of undone actions; return what could not be given back."""
    said = []
    for told in kit.record.to_give_back():
        outcome = told.outcome
        since = outcome.at if outcome is not None else told.action.at
        late = kit.clock() - since > PATIENCE
        try:
            document = _one(kit, told, snapshotter)
        except FallowError as error:
            document = {"failed": [error.message]} if late else None
        if document is None and late:
            document = {"failed": ["none of its pods runs: the snapshot stays where it is"]}
        if document is None:
            continue
        kit.record.append(words.GIVEN, told.action.id, document)
        said += [f"action {told.action.id}: {why}" for why in document["failed"]]
    return said


def _one(kit: Kit, told: Told, snapshotter: Snapshotter) -> dict[str, Any] | None:
    """Restore one snapshot; None = its pods do not run yet."""
    from actions.snapshots.nouns import Snapshot  # noqa: PLC0415  (only where there are any)

    kept = kit.record.kept_as(told)
    if kept is None:
        return {"failed": [f"the journal has no snapshot {told.action.snapshot}"]}
    target = told.action.intent.target
    pods = kit.door.pods(target)
    if not pods or any((p.get("status") or {}).get("phase") != RUNNING for p in pods):
        return None
    done = snapshotter.restore(msgspec.convert(kept, Snapshot, strict=False), target)
    return {
        "parts": [{"key": r.part.key, "result": r.result, "why": r.why} for r in done],
        "failed": [f"{r.part.key}: {r.why}" for r in done if r.result == "failed"],
    }
