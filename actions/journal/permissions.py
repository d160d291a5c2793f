"""What people, back-tests and the canary permit, forbid or request, by the rows of the journal."""

from datetime import datetime

import msgspec

from actions.journal.action_state import SubjectKey
from actions.policy.reversals import ReversalProof


class ApprovalRequest(msgspec.Struct, frozen=True):
    """An action that waits for approval."""

    decision: str
    policy: str
    finding: str
    subject: SubjectKey
    verb: str
    by: str
    at: datetime


class KeptWorkload(msgspec.Struct, frozen=True):
    """The request of an owner to keep a workload."""

    until: datetime
    by: str


class ActiveFreeze(msgspec.Struct, frozen=True):
    """A freeze of all actions: since when, by whom, and why."""

    at: datetime
    by: str
    why: str


class PolicyTrust(msgspec.Struct, frozen=True):
    """The permission for a policy of this text to do more than notify, since a given time."""

    fingerprint: str
    since: datetime
    by: str = ""
    reason: str = ""
    by_hand: bool = False
    """True: a person trusts it by hand; False: its back-test proved what it declares."""

    @property
    def text(self) -> str:
        """Return trust by hand as text."""
        return f"trusted by hand by {self.by} on {self.since:%Y-%m-%d}: {self.reason}"


class CanaryState(msgspec.Struct, frozen=True):
    """The last run of the canary: when it ended, its action, and when a run last passed."""

    ended_at: datetime | None = None
    action: str = ""
    last_success: datetime | None = None


class LastBacktest(msgspec.Struct, frozen=True):
    """The result of the last back-test of a policy."""

    fingerprint: str
    at: datetime
    proof: ReversalProof
