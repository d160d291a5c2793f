"""What was seen, told, approved, done and undone: append-only, hash-chained, kill-safe."""

from actions.journal.log import BrokenLink, Entry, Journal
from actions.journal.state import ActionState, JournalState

__all__ = ["ActionState", "BrokenLink", "Entry", "Journal", "JournalState"]
