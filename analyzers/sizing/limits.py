"""Limits and advice of sizing: rows of `limits.csv` and `advice.csv`, each with its source."""

from functools import cache

from analyzers.queries import load_rows


@cache
def get_limit(name: str) -> float:
    """Return one limit of `limits.csv`."""
    return _read_limits()[name]


@cache
def read_advice() -> dict[str, dict[str, str]]:
    """Return what to do about each kind of finding, by kind."""
    return {row["kind"]: row for row in load_rows("sizing/advice")}


@cache
def _read_limits() -> dict[str, float]:
    return {row["name"]: float(row["value"]) for row in load_rows("sizing/limits")}
