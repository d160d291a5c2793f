"""The types of the journal's rows: `event_types.csv` defines each type and its key."""

from functools import cache

from fallow.resources import read_table

SEEN, NOTICED, UNNOTICED = "seen", "noticed", "unnoticed"
ASKED, APPROVED, KEPT, REFUSED = "asked", "approved", "kept", "refused"
SNOOZED = "snoozed"
SNAPSHOT, GIVEN, INTENT, OUTCOME = "snapshot", "given", "intent", "outcome"
SENDING, SENT, WITHDRAWN = "sending", "sent", "withdrawn"
UNDOING, UNSENDING, UNSENT = "undoing", "unsending", "unsent"
RESTORED, ENDED, REVIEWED, BACKED_OFF = "restored", "ended", "reviewed", "backed-off"
FROZEN, THAWED = "frozen", "thawed"
TRUSTED, REVOKED, DEMOTED, BACKTESTED = "trusted", "revoked", "demoted", "backtested"
FLEET = "fleet"
"""Key of rows that are about everything."""


@cache
def event_types() -> frozenset[str]:
    """Return every type of row."""
    return frozenset(row["kind"] for row in read_table("actions.journal", "event_types.csv"))
