"""Limits and advice of sizing: rows of `limits.csv` and `advice.csv`, each with its source."""

from functools import cache

from analyzers.queries import rows_of


@cache
def limit(name: str) -> float:
    """Return one limit of `limits.csv`."""
    return _limits()[name]


@cache
def advice() -> dict[str, dict[str, str]]:
    """Return what to do about each kind of finding, by kind."""
    return {row["kind"]: row for row in rows_of("sizing/advice")}


@cache
def _limits() -> dict[str, float]:
    return {row["name"]: float(row["value"]) for row in rows_of("sizing/limits")}
