"""The journal's state in memory: every case and action, every freeze, and trust in policies.

    rows ─► DerivedState (derivation.py) ─► JournalledCases (cases.py) ─► JournalState

The state follows a journal: `catch_up` reads the rows that this and other processes wrote since. It
is built from rows only, so after a crash it is the same again.
"""

from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from actions.journal import event_types
from actions.journal.action_state import ActionState, SubjectKey
from actions.journal.cases import JournalledCases
from actions.journal.checkpoint import EVERY, read_checkpoint, write_checkpoint
from actions.journal.log import GENESIS, Entry, Journal
from actions.policy.budgets import CountedAction, count_action
from fallow.errors import UsageError
from fallow.system.clock_steps import ClockSteps

_STOPPED = frozenset({"done", "not sticking", "reverted"})
RESUME = "resume"
"""Capability of an action that starts again what another one suspended."""
_NOT_RESUMED = frozenset({"refused", "failed"})


class JournalState(JournalledCases):
    """The state of the journal in memory."""

    def __init__(self, journal: Journal, steps: ClockSteps | None = None) -> None:
        super().__init__(steps)
        self.journal = journal
        self._last_read = (0, GENESIS)
        self._checkpoint_seq = 0

    def catch_up(self) -> "JournalState":
        """Read the rows that were written since the last call.

        Raises:
            WarehouseError: a row is not what was written.
        """
        if not self._last_read[0] and (checkpoint := read_checkpoint(self.journal)):
            self.load(checkpoint.state)
            self._last_read = (checkpoint.seq, checkpoint.hash)
            self._checkpoint_seq = checkpoint.seq
        for entry in self.journal.follow(*self._last_read):
            self._last_read = (entry.seq, entry.hash)
            self.apply(entry)
        seq, row_hash = self._last_read
        if self.journal.writable and seq - self._checkpoint_seq >= EVERY:
            self._checkpoint_seq = seq
            write_checkpoint(self.journal, seq, row_hash, self.dump())
        return self

    def append(self, kind: str, key: str, document: Any, *, actor: str = "") -> Entry:
        """Write a row, and update the state."""
        entry = self.journal.append(kind, key, document, actor=actor or None)
        self.catch_up()
        return entry

    def extend(self, rows: Iterable[tuple[str, str, Any]]) -> None:
        """Write rows in one transaction, and update the state."""
        self.journal.extend(rows)
        self.catch_up()

    def knows(self, action: str) -> bool:
        """Return whether the journal has an action, or a reconciliation named it."""
        return action in self.actions or action in self._foreign

    def explain_lag(self, anchor: str) -> str | None:
        """Return why the Lease's anchor shows rows that this journal lacks; None = it has them."""
        if anchor in ("", self._reconciled_lease):
            return None
        try:
            why = self.journal.explain_anchor(anchor)
        except UsageError as error:
            why = error.message
        return f"it is not the journal that the Lease names: {why}" if why else None

    def renew_anchor(self, anchor: str) -> str:
        """Return the anchor to write into the Lease instead of one; empty: leave that one.

        An outdated journal leaves it: it is evidence of what the journal lacks.
        """
        if self.outdated or self.explain_lag(anchor):
            return ""
        return self.journal.anchor()

    def list_open(self) -> list[ActionState]:
        """Return the actions whose outcome is still open, oldest first."""
        return [state for state in self.actions.values() if state.is_open]

    def count_open(self) -> int:
        """Return how many actions count as concurrent: the canary's do not."""
        return sum(not state.is_canary for state in self.list_open())

    def list_unrestored(self) -> list[ActionState]:
        """Return undone actions whose snapshot is still to be restored."""
        return [
            state
            for state in self.actions.values()
            if state.action.snapshot is not None
            and not state.snapshot_restored
            and not state.is_open
            and state.outcome is not None
            and state.outcome.result == "undone"
        ]

    def read_snapshot(self, state: ActionState) -> dict[str, Any] | None:
        """Return the snapshot of an action as it was journalled."""
        for entry in reversed(self.journal.entries(event_types.SNAPSHOT)):
            if entry.document["id"] == state.action.snapshot:
                document: dict[str, Any] = entry.document["snapshot"]
                return document
        return None

    def list_standing(self, since: datetime) -> list[ActionState]:
        """Return the actions since a given time that were neither undone nor reversed."""
        return [
            state
            for state in self.actions.values()
            if state.outcome is not None
            and state.outcome.result in ("done", "not sticking")
            and state.restored is None
            and state.ended is None
            and state.action.at >= since
            and not state.is_open
            and self.resumed_at(state) is None
        ]

    def resumed_at(self, state: ActionState) -> datetime | None:
        """Return when a later action of Fallow resumed what an action suspended; None = none."""
        return min(
            (
                later.action.at
                for later in self._by_subject.get(state.workload, [])
                if later.action.at > state.action.at
                and later.action.intent.capability == RESUME
                and later.has_written
                and not (later.outcome is not None and later.outcome.result in _NOT_RESUMED)
            ),
            default=None,
        )

    def uses(self, since: datetime) -> tuple[CountedAction, ...]:
        """Return what counts against budgets since a given time.

        These are all actions that may have affected an owner.
        """
        return tuple(
            count_action(state.action.decision, state.action.at)
            for state in self.actions.values()
            if state.has_written and state.action.at >= since and not state.is_canary
        )

    def count_by_policy(self) -> dict[str, int]:
        """Return how many actions each policy ever took."""
        counts: dict[str, int] = defaultdict(int)
        for state in self.actions.values():
            if state.has_written:
                counts[state.action.decision.policy] += 1
        return dict(counts)

    def count_reversals(self, policy: str, within: timedelta, since: datetime) -> tuple[int, int]:
        """Return how many of a policy's actions owners reversed in time, and how many it took.

        The actions are those since a given time that stopped something. An action is reversed if
        its owner restored the workload, or it was undone, within `within` of the act.
        """
        acted = [
            state
            for state in self.actions.values()
            if state.action.decision.policy == policy
            and state.action.at >= since
            and any(o.result in _STOPPED for o in state.outcomes)
        ]
        reversed_actions = [t for t in acted if _is_reversed(t, within)]
        return len(reversed_actions), len(acted)

    def count_reversals_of(self, key: SubjectKey) -> int:
        """Return how many times the actions on a workload were reversed."""
        return sum(state.restored is not None for state in self._by_subject.get(key, []))


def _is_reversed(state: ActionState, within: timedelta) -> bool:
    reversal = state.restored
    return reversal is not None and reversal.person and reversal.at - state.action.at <= within
