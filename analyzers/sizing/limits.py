"""Limits of sizing: rows of `limits.csv`, each with its source."""

from analyzers.limits import read_limits


def get_limit(name: str) -> float:
    """Return one limit of `limits.csv`."""
    return read_limits("sizing")[name]
