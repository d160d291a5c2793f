"""The journal of a replay, in memory: its rows are those of a service, and so is its state."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

import msgspec

from actions.journal import event_types
from actions.journal.action_state import ActionState
from actions.journal.cases import JournalledCases
from actions.journal.log import GENESIS, Entry
from actions.journal.state import JournalState
from actions.policy.model import Policy
from fallow.action_models import Action, Decision, Intent, Outcome, Target, action_id

OWNER = "its owner"
APPROVERS = ("somebody", "somebody else")
"""Two, where a policy requires two people."""


class ReplayJournal(JournalState):
    """What a service would have journalled; `now` is the time of its next row."""

    def __init__(self, now: datetime) -> None:
        JournalledCases.__init__(self)
        self.now = now
        self._count = 0

    def catch_up(self) -> "ReplayJournal":
        """Read nothing: no other process writes rows."""
        return self

    def append(self, kind: str, key: str, document: Any, *, actor: str = "") -> Entry:
        """Update the state by a row."""
        self._count += 1
        entry = Entry(
            self._count, self.now, kind, key, actor, msgspec.to_builtins(document), GENESIS, GENESIS
        )
        self.apply(entry)
        return entry

    def extend(self, rows: Iterable[tuple[str, str, Any]]) -> None:
        """Update the state by several rows."""
        for kind, key, document in rows:
            self.append(kind, key, document)

    def trust(self, policies: Iterable[Policy]) -> None:
        """Trust policies as they are, as people do by hand."""
        for policy in policies:
            document = {"fingerprint": policy.fingerprint, "by": "hand", "reason": "replayed"}
            self.append(event_types.TRUSTED, policy.name, document, actor=APPROVERS[0])

    def notify(self, decision: Decision) -> None:
        """Record that the notice of a decision was delivered."""
        document = {"policy": decision.policy, "verb": decision.verb}
        self.append(event_types.NOTIFIED, decision.finding, document)

    def request_approval(self, decision: Decision, key: str) -> None:
        """Request the approval of an act, once."""
        if key not in self.approval_requests:
            document = {
                "policy": decision.policy,
                "finding": decision.finding,
                "subject": decision.subject,
                "verb": decision.verb,
            }
            self.append(event_types.APPROVAL_REQUESTED, key, document)

    def approve_all(self) -> None:
        """Approve every act that waits for approval."""
        for key, request in self.approval_requests.items():
            if not self.approvals(request.policy, request.finding):
                document = {"policy": request.policy, "finding": request.finding}
                for name in APPROVERS:
                    self.append(event_types.APPROVED, key, document, actor=name)

    def act(self, decision: Decision, at: datetime) -> ActionState:
        """Record an act that was done: its one write was applied."""
        cluster, kind, namespace, name = decision.subject
        target = Target(cluster, "", kind, namespace, name, decision.uid or "")
        self.now = at
        action = Action(
            id=action_id(decision.id, decision.uid or "", at),
            decision=decision,
            intent=Intent(target, decision.verb, (), ()),
            at=at,
            actor=APPROVERS[0],
        )
        state = ActionState(action)
        self.actions[action.id] = state
        self._by_subject[state.workload].append(state)
        self.append(event_types.SENT, action.id, {"change": 0, "code": 200})
        self.append(event_types.OUTCOME, action.id, Outcome(action.id, "done", at))
        return state
