"""The types of the journal's rows: `event_types.csv` defines each type and its key."""

from functools import cache

from fallow.resources import read_table

SEEN, NOTIFIED, NOTIFICATION_FAILED = "seen", "notified", "notification-failed"
APPROVAL_REQUESTED, APPROVED, REFUSED = "approval-requested", "approved", "refused"
KEEP, SNOOZED = "keep", "snoozed"
SNAPSHOT, SNAPSHOT_RESTORED = "snapshot", "snapshot-restored"
INTENT, SENDING, SENT, WITHDRAWN, OUTCOME = "intent", "sending", "sent", "withdrawn", "outcome"
UNDO_STARTED, UNDO_SENDING, UNDO_SENT = "undo-started", "undo-sending", "undo-sent"
REVERSED, OBJECT_GONE, REVIEWED = "reversed", "object-gone", "reviewed"
RESUME_REQUESTED = "resume-requested"
BACKED_OFF, FROZEN, THAWED = "backed-off", "frozen", "thawed"
OUTDATED, RECONCILED, CHECKPOINT = "outdated", "reconciled", "checkpoint"
TRUSTED, REVOKED, DEMOTED, BACKTESTED = "trusted", "revoked", "demoted", "backtested"
CANARY = "canary"
FLEET = "fleet"
"""Key of rows that are about everything."""


@cache
def read_event_types() -> frozenset[str]:
    """Return every type of row."""
    return frozenset(row["kind"] for row in read_table("actions.journal", "event_types.csv"))
