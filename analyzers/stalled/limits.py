"""Limits of stalled jobs: rows of `limits.csv`, each with its source."""

from functools import cache

from analyzers.queries import rows_of


@cache
def limits() -> dict[str, float]:
    """Return every limit of `limits.csv` by its name."""
    return {row["name"]: float(row["value"]) for row in rows_of("stalled/limits")}
