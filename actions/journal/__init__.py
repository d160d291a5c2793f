"""The journal of observations, notices, approvals, acts and undos: append-only and hash-chained.

It survives a kill of the process at any point.
"""

from actions.journal.action_state import ActionState
from actions.journal.log import BrokenLink, Entry, Journal
from actions.journal.state import JournalState

__all__ = ["ActionState", "BrokenLink", "Entry", "Journal", "JournalState"]
