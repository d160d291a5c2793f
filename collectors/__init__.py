"""Collectors bring rows in: no opinions, no SQL, no warehouse."""
