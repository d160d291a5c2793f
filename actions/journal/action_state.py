"""The state of one action by the rows of the journal: its writes, outcomes, undo and reversal."""

from datetime import datetime
from typing import Any

import msgspec

from actions.journal.log import Entry
from fallow.action_models import Action, Facts, Outcome, PendingResume, Reason, Result

SubjectKey = tuple[str, str, str, str]
"""cluster, kind, namespace, name"""
CaseKey = tuple[str, str]
"""policy, finding"""
CANARY = "canary"
"""Policy and finding of the canary's actions; ids of findings are hashes."""
READ_BACK, SUCCESS = 0, 2
"""Codes of success: 0 stands for an answer that never came while the object shows that the change
was applied."""


class WriteProgress(msgspec.Struct):
    """Progress of the writes of an action, or of its undo, by the number of the change."""

    sending: dict[int, datetime] = {}
    """When each was last about to be sent."""
    sent: dict[int, int] = {}
    """The answer to each: an HTTP code, or 0 where only reading the object back showed the result.
    """

    @property
    def open(self) -> dict[int, datetime]:
        """Return the changes that may have been sent and were never answered."""
        return {n: at for n, at in self.sending.items() if n not in self.sent}

    @property
    def took(self) -> set[int]:
        """Return the changes that the API applied, by its answer or as read back."""
        return {n for n, code in self.sent.items() if code == READ_BACK or code // 100 == SUCCESS}

    @property
    def last(self) -> datetime | None:
        """Return when the last change was about to be sent."""
        return max(self.sending.values(), default=None)


class Reversal(msgspec.Struct, frozen=True):
    """The reversal of an action: by a person (a reversal) or by a controller (a revert)."""

    at: datetime
    by: str
    person: bool


class UndoState(msgspec.Struct, frozen=True):
    """The start of an undo: by whom, when, and whether a person requested it."""

    by: str
    at: datetime
    requested: bool
    ends: Result = "undone"
    """The intended outcome."""
    why: tuple[Reason, ...] = ()


class ActionState(msgspec.Struct):
    """The state of one action by the journal."""

    action: Action
    facts: Facts | None = None
    policy: dict[str, Any] = {}
    writes: WriteProgress = msgspec.field(default_factory=WriteProgress)
    undo_progress: WriteProgress = msgspec.field(default_factory=WriteProgress)
    undo_state: UndoState | None = None
    outcomes: list[Outcome] = []
    order: tuple[int, int] = (0, 0)
    """Numbers of the rows of its last outcome and of its last undo."""
    restored: "Reversal | None" = None
    ended: datetime | None = None
    """When its object was observed to be gone."""
    reviewed: bool = False
    """Stored rows show that it did no harm."""
    pending_resume: PendingResume | None = None
    """The first request of its owner to resume it once it has room."""
    snapshot_restored: bool = False
    """The contents of its snapshot were restored, or cannot be."""

    @property
    def outcome(self) -> Outcome | None:
        """Return its last outcome; None = not known yet."""
        return self.outcomes[-1] if self.outcomes else None

    @property
    def is_open(self) -> bool:
        """Return whether its outcome, or that of its undo, is still open."""
        concluded, undoing = self.order
        return self.outcome is None or undoing > concluded

    @property
    def is_canary(self) -> bool:
        """Return whether it is a run of the canary, which saves nothing and uses no budget."""
        return self.action.decision.finding == CANARY

    @property
    def has_written(self) -> bool:
        """Return whether any of its changes was applied, or may have been."""
        return bool(self.writes.took or self.writes.open)

    @property
    def workload(self) -> SubjectKey:
        """Return the workload that it acted on."""
        return self.action.decision.subject


def format_subject_key(key: SubjectKey) -> str:
    """Format a workload as the key of a row."""
    return "/".join(key)


def parse_subject_key(entry: Entry) -> SubjectKey:
    """Return the workload that is the key of a row."""
    cluster, kind, namespace, name = entry.key.split("/", 3)
    return cluster, kind, namespace, name
