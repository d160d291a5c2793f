"""The same work in fewer bits: what it could save, as a range with its assumptions."""
