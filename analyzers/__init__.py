"""Analyzers turn rows into findings; each is a small module with its SQL beside it."""
