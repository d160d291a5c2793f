"""What was seen, told, approved, done and undone: append-only, hash-chained, kill-safe."""

from actions.journal.book import Broken, Entry, Journal
from actions.journal.record import Record, Told

__all__ = ["Broken", "Entry", "Journal", "Record", "Told"]
