"""Analyzers compute findings from stored rows; each is a small module with its SQL beside it."""
