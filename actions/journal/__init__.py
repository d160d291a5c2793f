"""What was seen, told, approved, done and undone: append-only, hash-chained, kill-safe."""

from actions.journal.book import Entry, Journal

__all__ = ["Entry", "Journal"]
